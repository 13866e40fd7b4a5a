// What plays next: samples in, blocks of the sound card's rate out, and reports on what was really played.
// The worklet runs it; a page that may have no worklet runs it too.

const FADE_SAMPLES = 120; // 5 ms: audio that is cut off in full swing clicks
const REPORT_EVERY_S = 0.04;

/** The audio of one utterance at a time. `handle` takes the page's messages, `render` is called for every block. */
export class PcmQueue {
  #outputRate;
  #chunks = [];
  #head = 0; // index into the first chunk
  #utterance = { id: null, sampleRate: 24000, ended: true };
  #phase = 1; // of the output between #previous (0) and #next (1)
  #fading = []; // the first samples of what was dropped, on their way to silence
  #previous = 0;
  #next = 0;
  #played = 0;
  #buffered = 0;
  #gaps = 0;
  #starved = false;
  #squares = 0; // sum over the output since the last report
  #rendered = 0;
  #news = false;

  /** @param {number} outputRate Hz */
  constructor(outputRate) {
    this.#outputRate = outputRate;
  }

  /** `begin {id, sampleRate}` drops what came before; `push {id, samples}` and `end {id}` count only for the last
   *  one begun, so that audio which was on its way when the listener interrupted is never heard; `flush`. */
  handle(message) {
    switch (message.type) {
      case "begin":
        this.#drop();
        this.#utterance = { id: message.id, sampleRate: message.sampleRate, ended: false };
        [this.#played, this.#gaps, this.#starved] = [0, 0, false];
        break;
      case "push":
        if (message.id !== this.#utterance.id || this.#utterance.ended) return;
        if (message.samples.length) this.#chunks.push(message.samples);
        this.#buffered += message.samples.length;
        this.#starved = false;
        break;
      case "end":
        if (message.id === this.#utterance.id) this.#utterance.ended = true;
        break;
      case "flush":
        this.#drop();
        this.#utterance.ended = true;
        break;
    }
    this.#news = true;
  }

  /** Fill one block. @param {Float32Array} output  @returns a report when there is something new, else null */
  render(output) {
    const step = this.#utterance.sampleRate / this.#outputRate;
    for (let index = 0; index < output.length; index += 1) {
      for (this.#phase += step; this.#phase > 1; this.#phase -= 1) this.#advance();
      // Linear: only for the rare browser that refuses an AudioContext at the audio's own rate.
      output[index] = this.#previous + (this.#next - this.#previous) * this.#phase;
      this.#squares += output[index] ** 2;
    }
    this.#rendered += output.length;
    const due = this.#rendered >= REPORT_EVERY_S * this.#outputRate;
    if (!this.#news && !(due && this.#playing)) return null;
    return this.#report();
  }

  get #playing() {
    return this.#buffered > 0 || this.#squares > 0;
  }

  #advance() {
    this.#previous = this.#next;
    if (this.#fading.length) {
      this.#next = this.#fading.shift();
      return;
    }
    this.#next = 0;
    if (this.#chunks.length) {
      this.#next = this.#take();
      this.#played += 1;
      if (this.#played === 1 || this.#buffered === 0) this.#news = true;
    } else if (this.#played && !this.#utterance.ended && !this.#starved) {
      this.#starved = this.#news = true;
      this.#gaps += 1;
    }
  }

  #take() {
    const sample = this.#chunks[0][this.#head];
    this.#head += 1;
    this.#buffered -= 1;
    if (this.#head === this.#chunks[0].length) {
      this.#chunks.shift();
      this.#head = 0;
    }
    return sample;
  }

  #drop() {
    const fading = Math.min(FADE_SAMPLES, this.#buffered);
    for (let index = 0; index < fading; index += 1) this.#fading.push(this.#take() * (1 - index / fading));
    [this.#chunks, this.#head, this.#buffered] = [[], 0, 0];
  }

  #report() {
    const level = this.#rendered ? Math.sqrt(this.#squares / this.#rendered) : 0;
    [this.#squares, this.#rendered, this.#news] = [0, 0, false];
    const { id, sampleRate, ended } = this.#utterance;
    const [played_s, buffered_s] = [this.#played / sampleRate, this.#buffered / sampleRate];
    return { id, played_s, buffered_s, gaps: this.#gaps, level, done: ended && this.#buffered === 0 };
  }
}
