// Bytes to samples: PCM s16le in slices of any length, and the WAV header before it.

/** Joins slices of PCM s16le, whose borders may cut a sample in two, and turns them into samples from -1 to 1. */
export class PcmReassembler {
  #carry = null; // the first byte of a sample whose second byte is still to come

  /** @param {Uint8Array} bytes  @returns {Float32Array} the samples that are whole now */
  push(bytes) {
    const carried = this.#carry === null ? 0 : 1;
    const joined = new Uint8Array(carried + bytes.length);
    if (carried) joined[0] = this.#carry;
    joined.set(bytes, carried);
    const whole = joined.length >> 1;
    this.#carry = joined.length % 2 ? joined[joined.length - 1] : null;
    const view = new DataView(joined.buffer);
    return Float32Array.from({ length: whole }, (_, index) => view.getInt16(2 * index, true) / 32767);
  }

  /** A new utterance or connection begins: half a sample that an old one left behind is noise, not audio. */
  reset() {
    this.#carry = null;
  }
}

/** Takes the header off a WAV stream of 16-bit mono PCM, whether its sizes are true or unknown. */
export class WavReader {
  /** Hz; null until the header has been read. */
  sampleRate = null;
  #head = new Uint8Array(0);
  #left = null; // bytes of audio still to come; null while the header is incomplete

  /** @param {Uint8Array} bytes  @returns {Uint8Array} what is audio in them. Throws Error: no such WAV. */
  push(bytes) {
    if (this.#left === null) {
      const head = new Uint8Array(this.#head.length + bytes.length);
      head.set(this.#head);
      head.set(bytes, this.#head.length);
      this.#head = head;
      const start = this.#parse();
      if (start === null) return new Uint8Array(0);
      bytes = head.subarray(start);
      this.#head = new Uint8Array(0);
    }
    const audio = bytes.subarray(0, this.#left);
    this.#left -= audio.length;
    return audio;
  }

  #parse() {
    const view = new DataView(this.#head.buffer);
    const name = (at) => String.fromCharCode(...this.#head.subarray(at, at + 4));
    if (this.#head.length < 12) return null;
    if (name(0) !== "RIFF" || name(8) !== "WAVE") throw new Error("the answer is no WAV file");
    for (let at = 12; at + 8 <= this.#head.length; ) {
      const [chunk, size] = [name(at), view.getUint32(at + 4, true)];
      if (chunk === "data") {
        if (this.sampleRate === null) throw new Error("the WAV file does not say what it holds");
        this.#left = size === 0xffffffff ? Infinity : size;
        return at + 8;
      }
      if (chunk === "fmt " && at + 24 <= this.#head.length) {
        const [coding, channels, bits] = [8, 10, 22].map((offset) => view.getUint16(at + offset, true));
        if (coding !== 1 || channels !== 1 || bits !== 16) throw new Error("the WAV file is not 16-bit mono PCM");
        this.sampleRate = view.getUint32(at + 12, true);
      }
      at += 8 + size + (size % 2);
    }
    return null;
  }
}
