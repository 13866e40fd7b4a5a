// What happened to one text, and when; no drawing. All times are seconds from the press of the button.

/** One way of having a text spoken: as a stream, or in one batch. */
export class Track {
  /** @type {{at_s: number, characters: number}[]} */
  texts = [];
  /** @type {{at_s: number, from_s: number, words: number, heard_s: number | null}[]} sentences, as their words came */
  segments = [];
  /** @type {{at_s: number, audio_s: number}[]} pieces of audio, as they came in */
  arrivals = [];
  /** @type {{at_s: number, buffered_s: number}[]} */
  levels = [];
  /** @type {{from_s: number, to_s: number}[]} spans of time in which audio was heard */
  playing = [];
  audio_s = 0; // that has come in
  played_s = 0; // of it, heard
  gaps = 0;
  received_s = null; // when the last audio had come in
  stopped_s = null;
  #silent = true; // audio that is heard next begins a new span

  /** When the first audio was here to be played; null before. */
  get firstAudio_s() {
    return this.arrivals.length ? this.arrivals[0].at_s : null;
  }

  /** When the last of the text had been sent; null before the first. */
  get written_s() {
    return this.texts.length ? this.texts.at(-1).at_s : null;
  }

  /** The end of what is known, audio that is still to be played included. */
  get end_s() {
    const heard_s = this.playing.length ? this.playing.at(-1).to_s : (this.firstAudio_s ?? 0);
    const rest_s = this.stopped_s === null ? this.audio_s - this.played_s : 0;
    return Math.max(this.written_s ?? 0, this.received_s ?? 0, heard_s + rest_s);
  }

  text(at_s, characters) {
    this.texts.push({ at_s, characters });
  }

  segment(at_s, words) {
    this.segments.push({ at_s, from_s: this.audio_s, words, heard_s: null });
  }

  audio(at_s, duration_s) {
    if (duration_s <= 0) return;
    this.arrivals.push({ at_s, audio_s: duration_s });
    this.audio_s += duration_s;
  }

  received(at_s) {
    this.received_s = at_s;
  }

  stopped(at_s) {
    this.stopped_s = at_s;
  }

  /** A report of PcmQueue. */
  report(at_s, { played_s, buffered_s, gaps }) {
    const advanced_s = played_s - this.played_s;
    const last = this.playing.at(-1);
    if (advanced_s > 0) {
      if (this.#silent) this.playing.push({ from_s: Math.max(at_s - advanced_s, last?.to_s ?? 0), to_s: at_s });
      else last.to_s = at_s;
      this.#silent = false;
    }
    if (gaps > this.gaps) this.#silent = true;
    [this.played_s, this.gaps] = [played_s, gaps];
    this.levels.push({ at_s, buffered_s });
    for (const segment of this.segments) {
      if (segment.heard_s === null && segment.from_s < played_s) segment.heard_s = at_s;
    }
  }

  /** What happened, in order, as `[seconds, sentence]`. */
  list() {
    const lines = [];
    const characters = this.texts.reduce((sum, text) => sum + text.characters, 0);
    if (this.texts.length === 1) lines.push([this.texts[0].at_s, `text sent, ${characters} characters`]);
    if (this.texts.length > 1) {
      lines.push([this.texts[0].at_s, "first words sent"]);
      lines.push([this.written_s, `last words sent, ${characters} characters in ${this.texts.length} pieces`]);
    }
    if (this.arrivals.length) lines.push([this.firstAudio_s, "first audio is here"]);
    this.segments.forEach(({ at_s, words, heard_s }, index) => {
      lines.push([at_s, `sentence ${index + 1} arrives (${words} ${words === 1 ? "word" : "words"})`]);
      if (heard_s !== null) lines.push([heard_s, `sentence ${index + 1} is heard`]);
    });
    this.playing.slice(1).forEach(({ from_s }) => lines.push([from_s, "speaks again after a gap"]));
    if (this.received_s !== null) lines.push([this.received_s, `all ${this.audio_s.toFixed(1)} s of audio are here`]);
    if (this.stopped_s !== null) lines.push([this.stopped_s, "stopped"]);
    return lines.sort(([a], [b]) => a - b);
  }
}

/** A round distance between the marks of an axis that is `span_s` long, at most `marks` of them. */
export function markEvery(span_s, marks) {
  const rough = span_s / marks;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

/** What the two first sounds say about each other; "" while one is missing. */
export function comparison(streamed_s, batch_s) {
  if (streamed_s === null || batch_s === null) return "";
  const ratio = batch_s / streamed_s;
  if (ratio >= 1.95) return `The stream spoke ${ratio < 10 ? ratio.toFixed(1) : Math.round(ratio)} times sooner.`;
  if (ratio > 1.05) return `The stream spoke ${(batch_s - streamed_s).toFixed(2)} s sooner.`;
  if (ratio >= 0.95) return "A text of one sentence: both begin together.";
  return `Batch was ${(streamed_s - batch_s).toFixed(2)} s sooner this time.`;
}
