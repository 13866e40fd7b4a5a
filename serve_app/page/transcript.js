// The text on the page, whose words light up as they are spoken.
import { placeOf, wordAt } from "./words.js";

export class Transcript {
  #scroller;
  #tail = document.createTextNode("");
  #timed = []; // {start_s, end_s, mark}
  #lit = -1;
  #said = 0; // words before this one have been marked as said

  /** @param scroller what is scrolled to keep the word that is heard in sight */
  constructor(box, text, scroller = box) {
    this.#scroller = scroller;
    this.#tail.data = text;
    box.replaceChildren(this.#tail);
    box.scrollTop = 0;
  }

  append(text) {
    this.#tail.data += text;
  }

  /** @param {{w: string, start_s: number, end_s: number}[]} words as the server sends them */
  place(words) {
    for (const { w, start_s, end_s } of words) {
      const place = placeOf(w, this.#tail.data);
      if (place === null) continue;
      const [start, end] = place;
      const mark = document.createElement("span");
      mark.className = "word";
      mark.textContent = this.#tail.data.slice(start, end);
      this.#tail.before(this.#tail.data.slice(0, start), mark);
      this.#tail.data = this.#tail.data.slice(end);
      this.#timed.push({ start_s, end_s, mark });
    }
  }

  /** Light up the word that is heard at `position_s` of the audio. */
  light(position_s) {
    const index = wordAt(this.#timed, position_s);
    for (; this.#said < this.#timed.length && this.#timed[this.#said].start_s <= position_s; this.#said += 1) {
      this.#timed[this.#said].mark.classList.add("said");
    }
    if (index === this.#lit) return;
    this.#timed[this.#lit]?.mark.classList.remove("now");
    this.#timed[index]?.mark.classList.add("now");
    this.#lit = index;
    if (index >= 0) this.#show(this.#timed[index].mark);
  }

  #show(mark) {
    const [box, word] = [this.#scroller.getBoundingClientRect(), mark.getBoundingClientRect()];
    if (word.bottom > box.bottom || word.top < box.top) this.#scroller.scrollTop += word.top - box.top - box.height / 3;
  }
}
