// How long answers let their listener wait, in seconds from Send.
import { seconds } from "./clock.js";

/** One answer's waits. */
export class Wait {
  /** When the first of the text was here; null before. */
  text_s = null;
  /** When the first sample left the loudspeaker; null before. */
  sound_s = null;

  /** @param prompt tells whether two answers can be compared */
  constructor(prompt) {
    this.prompt = prompt;
  }

  text(at_s) {
    this.text_s ??= at_s;
  }

  sound(at_s) {
    this.sound_s ??= at_s;
  }

  /** What was waited for, in a sentence; "" before anything came. */
  summary(mode) {
    const parts = [];
    if (this.text_s !== null) parts.push(`first text after ${seconds(this.text_s, 2)}`);
    if (this.sound_s !== null) parts.push(`first sound after ${seconds(this.sound_s, 2)}`);
    return parts.length ? `In ${mode}: ${parts.join(", ")}.` : "";
  }
}

/** What two waits, either of which may be null, say about each other; "" while a sound is missing. */
export function verdict(bidi, batch) {
  if ((bidi?.sound_s ?? null) === null || (batch?.sound_s ?? null) === null) return "";
  const ratio = batch.sound_s / bidi.sound_s;
  const other = bidi.prompt === batch.prompt ? "" : " Their prompts were not the same.";
  if (ratio >= 1.05) return `Bidi was heard ${times(ratio)} sooner than batch.${other}`;
  if (ratio > 0.95) return `Both were heard equally soon.${other}`;
  return `Batch was heard ${times(1 / ratio)} sooner than bidi this time.${other}`;
}

const times = (ratio) => `${ratio < 10 ? ratio.toFixed(ratio < 1.95 ? 2 : 1) : Math.round(ratio)} times`;
