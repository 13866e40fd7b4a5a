// The loudspeaker, which both halves of the page share, and how far it is with the utterance that it plays.
import { now_s, seconds } from "./clock.js";
import { Sound } from "./sound.js";

let current = null;

export const sound = new Sound((report) => {
  if (report.id === current?.id) current.report(report);
});

const element = (id) => document.getElementById(id);

/** One utterance at the loudspeaker. The last one made is the one that is played and shown. */
export class Playback {
  #onReport;
  #last = { played_s: 0, buffered_s: 0, gaps: 0, level: 0 };
  #at_s = 0;
  #silenced = false;

  /** @param onReport called with every report of PcmQueue on this utterance */
  constructor(id = null, onReport = () => {}) {
    this.id = id;
    this.#onReport = onReport;
    current = this;
  }

  report(report) {
    [this.#last, this.#at_s] = [report, now_s()];
    this.#onReport(report);
  }

  /** It is over, or has been stopped: what is still buffered will not be heard. */
  silence() {
    this.#last = { ...this.#last, played_s: this.#rendered_s };
    this.#silenced = true;
  }

  /** Seconds of the audio that have left the loudspeaker. */
  get heard_s() {
    return Math.max(0, this.#rendered_s - sound.latency_s);
  }

  show() {
    if (this !== current) return;
    const { played_s, buffered_s, gaps, level } = this.#last;
    element("heard").textContent = seconds(played_s);
    element("buffered").textContent = seconds(buffered_s);
    element("gaps").textContent = gaps;
    element("level").value = buffered_s > 0 && !this.#silenced ? level : 0;
  }

  /** The last report, carried on to now. */
  get #rendered_s() {
    const { played_s, buffered_s } = this.#last;
    return played_s + (this.#silenced ? 0 : Math.min(buffered_s, now_s() - this.#at_s));
  }
}
