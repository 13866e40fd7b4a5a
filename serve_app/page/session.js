// One WebSocket conversation: many utterances, spoken one after the other, over a connection that opens when needed.
import { SpeechFailed, sentence } from "./answer.js";
import { PcmReassembler } from "./pcm.js";

/** There is no connection, and a browser never tells why. */
export class NoSession extends SpeechFailed {}

const MODEL_RATE = 24000;

const CLOSED = {
  1001: "The server is shutting down or has let an idle session go.",
  1006: "The connection to the server was lost.",
  1008: "The server no longer accepts this API key.",
  1011: "The server failed and closed the session.",
  1012: "The server is restarting.",
  1013: "The server is full; try again in a moment.",
};

/** Events pushed on one side, awaited on the other. */
class EventQueue {
  #events = [];
  #wake = () => {};
  #over = false;
  #error = null;

  push(event) {
    if (!this.#over) this.#events.push(event);
    this.#wake();
  }

  /** No more events; with an `error`, the reader gets it after those it has not read. */
  close(error = null) {
    if (!this.#over) [this.#over, this.#error] = [true, error];
    this.#wake();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      if (this.#events.length) yield this.#events.shift();
      else if (this.#error) throw this.#error;
      else if (this.#over) return;
      else await new Promise((resolve) => (this.#wake = resolve));
    }
  }
}

/** The page's end of /invocations-bidirectional-stream. */
export class SpeechSession {
  #url;
  #onClosed;
  #subprotocols;
  #socket = null;
  #opening = null;
  #listening = { id: null, events: new EventQueue() };
  #speaking = null; // the utterance that binary frames belong to
  #pcm = new PcmReassembler();

  /** @param onClosed called with a sentence when the connection ends while nothing is being spoken
   *  @param subprotocols called for what to offer when a connection opens */
  constructor(url, onClosed, subprotocols = () => []) {
    this.#url = url;
    this.#onClosed = onClosed;
    this.#subprotocols = subprotocols;
  }

  get connected() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Connect, unless that is done. Throws NoSession. */
  async open() {
    if (this.connected) return;
    this.#opening ??= this.#connect().finally(() => (this.#opening = null));
    await this.#opening;
  }

  /** The events of the utterance to be sent next: those of readAnswer, and `{type: "cancelled", sent_s}`. */
  listen(id) {
    this.#listening.events.close();
    this.#listening = { id, events: new EventQueue() };
    return this.#listening.events;
  }

  /** Send one message. Of a connection that has just ended, the events tell. */
  send(message) {
    if (this.connected) this.#socket.send(JSON.stringify(message));
  }

  #connect() {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(this.#url, this.#subprotocols());
      socket.binaryType = "arraybuffer";
      socket.onopen = () => {
        [this.#socket, this.#speaking] = [socket, null];
        this.#pcm.reset();
        socket.onclose = ({ code }) => this.#closed(code);
        resolve();
      };
      socket.onclose = () => reject(new NoSession("The server did not open a session."));
      socket.onmessage = ({ data }) => (typeof data === "string" ? this.#control(data) : this.#audio(data));
    });
  }

  #audio(data) {
    const { id, events } = this.#listening;
    if (this.#speaking === id) events.push({ type: "audio", samples: this.#pcm.push(new Uint8Array(data)) });
  }

  #control(data) {
    const { id, events } = this.#listening;
    const frame = parsed(data);
    if (frame === null) return this.#ended(new SpeechFailed("The server sent a message that is not JSON."));
    if (frame.type === "synthesis_start") {
      this.#speaking = frame.request_id;
      this.#pcm.reset();
    }
    if (frame.request_id !== id && !(frame.type === "error" && frame.request_id === "unknown")) return;
    switch (frame.type) {
      case "synthesis_start":
        return events.push({ type: "start", sampleRate: MODEL_RATE });
      case "words":
        return events.push({ type: "words", words: frame.words });
      case "synthesis_cancelled":
        events.push({ type: "cancelled", sent_s: frame.sent_duration_s });
        return this.#ended();
      case "synthesis_complete":
        events.push({ type: "end" });
        return this.#ended();
      case "error":
        return this.#ended(new SpeechFailed(sentence(frame.message)));
    }
  }

  #ended(error = null) {
    this.#listening.events.close(error);
    this.#listening.id = null;
  }

  #closed(code) {
    const words = CLOSED[code] ?? `The server closed the session (code ${code}).`;
    if (this.#listening.id === null) this.#onClosed(words);
    else this.#ended(new SpeechFailed(words));
  }
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}
