// The audio thread's end of sound.js.
import { PcmQueue } from "./pcm-queue.js";

class PcmPlayer extends AudioWorkletProcessor {
  #queue = new PcmQueue(sampleRate);

  constructor() {
    super();
    this.port.onmessage = ({ data }) => this.#queue.handle(data);
  }

  process(_inputs, outputs) {
    const report = this.#queue.render(outputs[0][0]);
    if (report !== null) this.port.postMessage(report);
    return true;
  }
}

registerProcessor("pcm-player", PcmPlayer);
