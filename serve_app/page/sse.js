// Server-sent events out of a byte stream, as the HTML standard parses them, wherever the network cuts it.

/** Feed it bytes; events come out when their blank line has come in. */
export class SseParser {
  #decoder = new TextDecoder("utf-8"); // keeps half a character for the next slice, and drops a byte order mark
  #line = "";
  #afterReturn = false; // a LF that follows belongs to the line end already seen
  #name = "";
  #data = [];

  /** @param {Uint8Array} bytes  @returns {{name: string, data: string}[]} */
  push(bytes) {
    return this.#parse(this.#decoder.decode(bytes, { stream: true }));
  }

  /** The stream has ended. @returns {boolean} whether an event was cut off, which the standard says to forget */
  end() {
    this.#line += this.#decoder.decode();
    return this.#line !== "" || this.#data.length > 0 || this.#name !== "";
  }

  #parse(text) {
    const events = [];
    for (const part of text.split(/(\r\n|\r|\n)/)) {
      if (part === "") continue;
      if (part !== "\r" && part !== "\n" && part !== "\r\n") {
        this.#line += part;
        this.#afterReturn = false;
      } else if (part === "\n" && this.#afterReturn) {
        this.#afterReturn = false;
      } else {
        this.#afterReturn = part === "\r";
        const event = this.#endLine();
        if (event) events.push(event);
      }
    }
    return events;
  }

  #endLine() {
    const line = this.#line;
    this.#line = "";
    if (line === "") {
      const event = this.#data.length ? { name: this.#name || "message", data: this.#data.join("\n") } : null;
      [this.#name, this.#data] = ["", []];
      return event;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    if (field === "data") this.#data.push(value);
    return null;
  }
}
