// The way to the loudspeaker: an AudioContext with a player in it.
import { PcmQueue } from "./pcm-queue.js";

const MODEL_RATE = 24000;

/** Plays one utterance at a time. Every method may be called before `start` has finished; order is kept. */
export class Sound {
  #context = null;
  #node = null; // kept: Chromium collects a ScriptProcessorNode that nothing refers to
  #send = null; // to the player
  #waiting = [];
  #onReport;

  /** @param onReport called with the reports of PcmQueue */
  constructor(onReport) {
    this.#onReport = onReport;
  }

  /** Must be called in a click or key press, the one moment at which browsers allow sound. Rejects if they don't. */
  async start() {
    const first = this.#context === null;
    if (first) this.#context = open();
    const running = this.#context.resume();
    if (first) {
      [this.#node, this.#send] = await connect(this.#context, this.#onReport);
      for (const message of this.#waiting.splice(0)) this.#send(message);
    }
    await running;
  }

  /** Seconds between a sample's being rendered and its being heard. */
  get latency_s() {
    return this.#context?.outputLatency || this.#context?.baseLatency || 0;
  }

  /** The sound card's clock. */
  get clock_s() {
    return this.#context?.currentTime ?? 0;
  }

  begin(id, sampleRate) {
    this.#post({ type: "begin", id, sampleRate });
  }

  push(id, samples) {
    this.#post({ type: "push", id, samples });
  }

  end(id) {
    this.#post({ type: "end", id });
  }

  flush() {
    this.#post({ type: "flush" });
  }

  #post(message) {
    if (this.#send) this.#send(message);
    else this.#waiting.push(message);
  }
}

function open() {
  try {
    return new AudioContext({ sampleRate: MODEL_RATE });
  } catch {
    return new AudioContext(); // the player resamples
  }
}

/** @returns {Promise<[AudioNode, (message: object) => void]>} */
async function connect(context, onReport) {
  if (context.audioWorklet) {
    await context.audioWorklet.addModule(new URL("pcm-worklet.js", import.meta.url));
    const node = new AudioWorkletNode(context, "pcm-player", { numberOfInputs: 0, outputChannelCount: [1] });
    node.port.onmessage = ({ data }) => onReport(data);
    node.connect(context.destination);
    return [node, (message) => node.port.postMessage(message, message.samples ? [message.samples.buffer] : [])];
  }
  // Plain http from another machine: browsers keep worklets for secure contexts, and this old way for everybody.
  const queue = new PcmQueue(context.sampleRate);
  const node = context.createScriptProcessor(1024, 1, 1);
  node.onaudioprocess = ({ outputBuffer }) => {
    const report = queue.render(outputBuffer.getChannelData(0));
    if (report !== null) onReport(report);
  };
  node.connect(context.destination);
  return [node, (message) => queue.handle(message)];
}
