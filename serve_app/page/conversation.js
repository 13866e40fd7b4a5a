// The conversation on the page: prompts, and answers that grow while they are written and light up as they are spoken.
// All of it is text to the browser, whatever a model writes.
import { Transcript } from "./transcript.js";

/** What has been said, oldest first, in a box that scrolls. */
export class Conversation {
  #box;

  constructor(box) {
    this.#box = box;
  }

  /** A prompt has been sent. @returns {Turn} */
  ask(prompt) {
    return new Turn(this.#box, prompt);
  }
}

/** A prompt and its answer. */
class Turn {
  #box;
  #answer;
  #note = paragraph("note");
  #heard = false;

  constructor(box, prompt) {
    const [asked, answered] = [spoken("You", "asked"), spoken("Agent", "answered")];
    asked.lastChild.textContent = prompt;
    this.#answer = new Transcript(answered.lastChild, "", box);
    const turn = document.createElement("article");
    turn.append(asked, answered, this.#note);
    box.append(turn);
    this.#box = box;
    this.#follow();
  }

  append(text) {
    this.#answer.append(text);
    this.#follow();
  }

  place(words) {
    this.#answer.place(words);
  }

  light(position_s) {
    this.#heard ||= position_s > 0;
    this.#answer.light(position_s);
  }

  note(words) {
    this.#note.textContent = words;
    this.#follow();
  }

  /** Once speech is heard, the word that is spoken stays in sight instead of the end. */
  #follow() {
    if (!this.#heard) this.#box.scrollTop = this.#box.scrollHeight;
  }
}

function spoken(who, kind) {
  const [line, name] = [paragraph(kind), document.createElement("b")];
  name.textContent = who;
  line.append(name, " ", document.createElement("span"));
  return line;
}

function paragraph(kind) {
  const line = document.createElement("p");
  line.className = kind;
  return line;
}
