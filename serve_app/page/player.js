// Speaking a text: what the controls do, and what the page shows of it.
import { SpeechFailed, readAnswer } from "./answer.js";
import { now_s, seconds } from "./clock.js";
import { draw } from "./drawing.js";
import { onChange, talking } from "./halves.js";
import { askForKey, subprotocols, withKey } from "./key.js";
import { manner } from "./manner.js";
import { Playback, sound } from "./playback.js";
import { NoSession, SpeechSession } from "./session.js";
import { Track, comparison } from "./timeline.js";
import { Transcript } from "./transcript.js";
import { tokens } from "./words.js";

const FRAMES_BETWEEN_DRAWINGS = 6;
const BATCH = { stream: false, format: "wav" };

const element = (id) => document.getElementById(id);
const url = (path) => new URL(path, document.baseURI);

const session = new SpeechSession(url("invocations-bidirectional-stream").href.replace(/^http/, "ws"), say, subprotocols);

/** A text on its way to being audio. `options`: text, voice, speed and what else `choices` gives. */
class Request {
  id = `page-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  track = new Track();
  aborter = new AbortController();
  sampleRate = null;

  constructor(options, began_s) {
    Object.assign(this, options);
    this.began_s = began_s;
  }

  get at_s() {
    return now_s() - this.began_s;
  }

  get fields() {
    return { voice: this.voice, speed: this.speed, request_id: this.id };
  }
}

/** One press of a button: a request that is heard, `streamed` or in `batch`. */
class Run extends Request {
  feeding = false; // the server waits for a text_end
  failed = false; // what had arrived is still heard
  over = false; // stopped, or heard to the end
  playback = new Playback(this.id, (report) => heard(this, report));

  constructor(way, options) {
    super(options, now_s());
    this.way = way;
    this.transcript = new Transcript(element("transcript"), this.written ? "" : this.text);
  }

  end() {
    this.over = true;
    this.playback.silence();
  }
}

let run = null;
let timing = null; // the request that times the same text in batch, unheard
let shown = { same: "", streamed: null, batch: null }; // tracks of one text, spoken in one way

// What the buttons do

function speak(way) {
  const text = element("text").value;
  stop();
  complain("");
  if (!text.trim()) {
    complain("There is no text to speak.");
    element("text").focus();
    return;
  }
  const options = choices();
  const mine = (run = new Run(way, { text, ...options }));
  const same = JSON.stringify([text, options.voice, options.speed, options.written && options.pace]);
  shown = { ...(same === shown.same ? shown : { same, streamed: null, batch: null }), [way]: mine.track };
  enter("waiting", way === "streamed" ? "Waiting for the first sentence…" : "Waiting for the whole answer…");
  receive(mine); // first: over an open connection the text leaves before the browser turns to its loudspeaker
  sound.start().catch(() => fail(mine, new SpeechFailed("This browser does not let the page play sound.")));
}

async function receive(mine) {
  try {
    const events = mine.way === "batch" ? inBatch(mine) : mine.via === "events" ? overHttp(mine) : overSocket(mine);
    for await (const event of events) take(mine, event);
  } catch (error) {
    await fail(mine, error);
  }
}

/** Barge-in: silence at once, and the server is told. */
function stop() {
  timing?.aborter.abort();
  timing = null;
  if (run === null || run.over) return;
  sound.flush();
  run.track.stopped(run.at_s);
  run.end();
  if (run.way === "streamed" && run.via === "socket") session.send({ type: "cancel", request_id: run.id });
  endFeeding(run);
  run.aborter.abort();
  enter("idle", `Stopped after ${seconds(run.track.played_s)} of speech.`);
}

function choices() {
  return {
    ...manner(),
    written: document.querySelector("[name=arrival]:checked").value === "written",
    pace: Math.max(1, element("pace").valueAsNumber || 1),
    via: element("via").value,
    compare: element("compare").checked,
  };
}

// The ways to the server; each yields the events of answer.js

async function* overSocket(mine) {
  if (!session.connected) await session.open();
  if (mine.over) return;
  const events = session.listen(mine.id);
  if (mine.written) {
    feed(mine);
  } else {
    session.send({ text: mine.text, ...mine.fields, timestamps: true });
    mine.track.text(mine.at_s, mine.text.length);
  }
  yield* events;
}

async function feed(mine) {
  mine.feeding = true;
  const options = { ...mine.fields, timestamps: true };
  await write(mine, (text) => mine.feeding && session.send({ type: "text_delta", text, ...options }));
  endFeeding(mine);
}

function endFeeding(mine) {
  if (mine.feeding) session.send({ type: "text_end" });
  mine.feeding = false;
}

async function* overHttp(mine) {
  if (mine.written) await write(mine); // one request has one body: the text has to be complete
  if (mine.over) return;
  if (!mine.written) mine.track.text(mine.at_s, mine.text.length);
  yield* post(mine, { transport: "sse", format: "pcm", timestamps: true });
}

async function* inBatch(mine) {
  if (mine.written) await write(mine);
  if (mine.over) return;
  if (!mine.written) mine.track.text(mine.at_s, mine.text.length);
  yield* post(mine, BATCH);
}

async function* post(mine, fields) {
  const response = await fetch(url("invocations"), {
    method: "POST",
    headers: withKey({ "content-type": "application/json" }),
    body: JSON.stringify({ text: mine.text, ...mine.fields, ...fields }),
    signal: mine.aborter.signal,
  });
  if (response.status === 401) throw new SpeechFailed(askForKey());
  yield* readAnswer(response);
}

/** Write the text word by word at its pace, as a language model would. */
async function write(mine, send = () => {}) {
  const began_s = now_s();
  for (const [index, token] of tokens(mine.text).entries()) {
    await pause(began_s + index / mine.pace - now_s(), mine.aborter.signal);
    if (mine.over) return;
    send(token);
    mine.track.text(mine.at_s, token.length);
    mine.transcript.append(token);
  }
}

function pause(duration_s, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, Math.max(0, duration_s * 1000));
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

// What comes back

function take(mine, event) {
  if (event.type === "cancelled") {
    if (mine === run) say(`Stopped. The server had sent ${seconds(event.sent_s)} of speech and dropped the rest.`);
    return;
  }
  if (mine.over) return;
  switch (event.type) {
    case "start":
      mine.sampleRate = event.sampleRate;
      sound.begin(mine.id, event.sampleRate);
      break;
    case "words":
      mine.track.segment(mine.at_s, event.words.length);
      mine.transcript.place(event.words);
      break;
    case "audio":
      mine.track.audio(mine.at_s, event.samples.length / mine.sampleRate);
      sound.push(mine.id, event.samples);
      if (document.body.dataset.state === "waiting") enter("speaking", "Speaking.");
      break;
    case "end":
      mine.track.received(mine.at_s);
      sound.end(mine.id);
      if (mine.track.audio_s === 0) finish(mine, "There is nothing to speak in this text.");
      else if (mine.way === "streamed" && mine.compare) timeInBatch(mine);
      break;
  }
}

/** A report of PcmQueue. */
function heard(mine, report) {
  if (mine.over) return showFigures();
  mine.track.report(mine.at_s, report);
  if (report.done && (mine.failed || mine.track.received_s !== null)) {
    finish(mine, mine.failed ? "" : `Done: ${seconds(mine.track.audio_s)} of speech.`);
  }
}

function finish(mine, words) {
  mine.end();
  mine.transcript.light(Infinity);
  enter("idle", words);
}

async function fail(mine, error) {
  if (mine.over || mine.failed) return;
  mine.failed = true;
  endFeeding(mine);
  mine.aborter.abort();
  sound.end(mine.id);
  if (mine.track.audio_s === 0) finish(mine, "");
  const words = await explanation(error);
  if (mine === run) complain(words);
}

/** Why there was no answer, for a person; asks other routes, because browsers don't tell. */
async function explanation(error) {
  if (error instanceof SpeechFailed && !(error instanceof NoSession)) return error.message;
  let ping;
  try {
    ping = await fetch(url("ping"));
  } catch {
    return `The server at ${location.host} cannot be reached. Is it running? The next press tries again.`;
  }
  if (!ping.ok) {
    const { error: reason } = await ping.json().catch(() => ({}));
    return `The server cannot speak now: ${reason ?? `status ${ping.status}`}.`;
  }
  if (!(error instanceof NoSession)) return "The connection broke off before the answer was complete. Try again.";
  if ((await fetch(url("v1/models"), { headers: withKey() })).status === 401) return askForKey();
  return (
    "The server is there but did not open a session. It may be full; or something on the way does not pass " +
    "WebSockets, then choose HTTP events."
  );
}

/** The same text in one batch, unheard: only its time is wanted. A batch begins when its text is complete. */
async function timeInBatch(streamed) {
  const mine = (timing = new Request(
    { text: streamed.text, voice: streamed.voice, speed: streamed.speed },
    now_s() - streamed.track.written_s,
  ));
  mine.track.text(streamed.track.written_s, mine.text.length);
  shown.batch = mine.track;
  try {
    for await (const event of post(mine, BATCH)) {
      if (event.type === "start") mine.sampleRate = event.sampleRate;
      if (event.type === "audio") mine.track.audio(mine.at_s, event.samples.length / mine.sampleRate);
      if (event.type === "end") mine.track.received(mine.at_s);
    }
  } catch (error) {
    if (timing === mine) complain(`The same text in batch: ${await explanation(error)}`);
  }
  if (timing === mine) timing = null;
  showTimes();
}

// What the page shows

function say(words) {
  element("status").textContent = words;
}

function complain(words) {
  element("error").textContent = words;
}

/** @param {"idle" | "waiting" | "speaking"} state */
function enter(state, words) {
  document.body.dataset.state = state;
  element("stop").setAttribute("aria-disabled", String(state === "idle"));
  say(words);
  showTimes();
  if (state !== "idle" && !painting) paint();
}

let painting = 0;

function paint() {
  const busy = !run.over || timing !== null;
  if (!run.over) run.transcript.light(run.playback.heard_s);
  if (painting % FRAMES_BETWEEN_DRAWINGS === 0 || !busy) {
    showFigures();
    redraw();
  }
  painting = busy ? painting + 1 : 0;
  if (busy) requestAnimationFrame(paint);
}

function redraw() {
  const busy = run !== null && !run.over ? run : timing;
  draw(element("timeline"), shown, busy?.at_s ?? null);
}

function showFigures() {
  run.playback.show();
  for (const way of ["streamed", "batch"]) {
    const first_s = shown[way]?.firstAudio_s ?? null;
    const request = shown[way] === timing?.track ? timing : shown[way] === run?.track && !run.over ? run : null;
    const waited = request ? `${seconds(request.at_s)}…` : "–";
    element(`${way}-first`).textContent = first_s === null ? waited : seconds(first_s, 2);
  }
}

function showTimes() {
  showFigures();
  const { streamed, batch } = shown;
  element("verdict").textContent = comparison(streamed?.firstAudio_s ?? null, batch?.firstAudio_s ?? null);
  for (const way of ["streamed", "batch"]) {
    const lines = shown[way]?.list() ?? [];
    element(`${way}-list`).replaceChildren(
      ...lines.map(([at_s, words]) => {
        const [line, time] = [document.createElement("li"), document.createElement("b")];
        time.textContent = seconds(at_s, 2);
        line.append(time, words);
        return line;
      }),
    );
  }
}

// Wiring

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  speak("streamed");
});
for (const approach of ["pointerover", "focusin"]) {
  // Somebody is about to press: connect meanwhile. If it fails, the press will say so.
  element("form").addEventListener(approach, () => session.open().catch(() => {}), { once: true });
}
element("batch").addEventListener("click", () => speak("batch"));
element("stop").addEventListener("click", stop);
onChange(stop);
document.addEventListener("keydown", (event) => {
  if (talking()) return;
  if (event.key === "Escape") stop();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speak("streamed");
  }
});
new ResizeObserver(redraw).observe(element("timeline"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
