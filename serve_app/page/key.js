// The server's API key, where it asks for one: in memory, and in this tab's storage until the tab is closed.
const STORED = "api-key";
const SUBPROTOCOL = "speech"; // what the server chooses; the key beside it is never sent back

const element = (id) => document.getElementById(id);

/** What a request to the server carries beside `headers`. The agent is another server, and not told. */
export function withKey(headers = {}) {
  const key = written();
  return key ? { ...headers, authorization: `Bearer ${key}` } : headers;
}

/** What a WebSocket offers: a browser sets no header there. */
export function subprotocols() {
  const key = written();
  return key ? [SUBPROTOCOL, `bearer.${key}`] : [];
}

/** Let a person write a key.  @returns {string} what to tell them */
export function askForKey() {
  element("key-field").hidden = false;
  return written()
    ? "The server does not accept this API key."
    : "The server asks for an API key: write it into its field above.";
}

/** Have `listener` called when another key has been written. */
export function onKey(listener) {
  element("key").addEventListener("change", listener);
}

/** What neither a header nor a subprotocol can carry is no key. */
function written() {
  const key = element("key").value.trim();
  return /^[\w.-]+$/.test(key) ? key : "";
}

element("key").value = sessionStorage.getItem(STORED) ?? "";
element("key-field").hidden = !written();
element("key-field").addEventListener("submit", (event) => event.preventDefault());
element("key").addEventListener("change", () => sessionStorage.setItem(STORED, written()));
