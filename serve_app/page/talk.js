// Talking to the agent: what the controls do, and what the page shows of it.
import { LOCAL_AGENT, agentAddress, ask, newConversationId } from "./agent.js";
import { SpeechFailed } from "./answer.js";
import { now_s, seconds } from "./clock.js";
import { Conversation } from "./conversation.js";
import { onChange, talking } from "./halves.js";
import { Wait, verdict } from "./latencies.js";
import { manner } from "./manner.js";
import { Playback, sound } from "./playback.js";

const MODES = ["bidi", "batch"];
const FRAMES_BETWEEN_FIGURES = 6;

const element = (id) => document.getElementById(id);

const conversationId = newConversationId(); // one conversation as long as the page is open
const conversation = new Conversation(element("conversation"));

/** A prompt on its way to being an answer that has been heard. */
class Answer {
  id = `talk-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  aborter = new AbortController();
  playback = new Playback(this.id, (report) => heard(this, report));
  began_s = now_s();
  sampleRate = null;
  audio_s = 0; // that has come in
  begun = false; // the agent knows of the prompt
  failed = false; // what had arrived is still heard
  settled = false; // nothing more will arrive
  over = false; // interrupted, or heard to the end

  constructor(prompt, mode) {
    [this.prompt, this.mode] = [prompt, mode];
    this.wait = new Wait(prompt);
    this.turn = conversation.ask(prompt);
  }

  get at_s() {
    return now_s() - this.began_s;
  }

  /** @param outcome a sentence, or "" where there is nothing to remark */
  end(outcome) {
    this.over = true;
    this.playback.silence();
    this.turn.note([outcome, this.wait.summary(this.mode)].filter(Boolean).join(" "));
  }
}

let answer = null;
let heard_s; // of the answer that was interrupted last, until the agent has been told
const waits = { bidi: null, batch: null };

// What the buttons do

function send() {
  const prompt = element("prompt").value.trim();
  complain("");
  if (!prompt) return refuse("prompt", "There is no prompt to send.");
  let address;
  try {
    address = agentAddress(element("agent").value.trim());
  } catch (error) {
    return refuse("agent", error.message);
  }
  interrupt();
  const before = answer;
  const mine = (answer = new Answer(prompt, document.querySelector("[name=mode]:checked").value));
  waits[mine.mode] = mine.wait;
  element("prompt").value = "";
  enter("waiting", "Waiting for the agent…");
  receive(mine, address, before);
  sound.start().catch(() => fail(mine, new SpeechFailed("This browser does not let the page play sound.")));
}

async function receive(mine, address, before) {
  const fields = { prompt: mine.prompt, mode: mine.mode, ...manner(), request_id: mine.id, heard_s };
  try {
    for await (const event of ask(address, conversationId, fields, mine.aborter.signal)) {
      // The answer before ends only now: told of a hang-up first, the agent would have to guess what was heard.
      if (event.type === "begun") before?.aborter.abort();
      take(mine, event);
    }
  } catch (error) {
    fail(mine, error);
  } finally {
    before?.aborter.abort();
  }
}

/** Silence at once. */
function interrupt() {
  if (answer === null || answer.over) return;
  sound.flush();
  const after_s = answer.playback.heard_s;
  if (answer.begun) heard_s = after_s;
  answer.end(`Interrupted after ${seconds(after_s)} of speech.`);
}

/** Silence at once, without another prompt. */
function stop() {
  if (answer === null || answer.over) return;
  interrupt();
  answer.aborter.abort();
  enter("idle", "Stopped.");
}

function refuse(id, words) {
  complain(words);
  element(id).focus();
}

// What comes back

function take(mine, event) {
  if (event.type === "begun") {
    mine.begun = true;
    heard_s = undefined;
  }
  if (mine.over) return;
  switch (event.type) {
    case "begun":
      say("The agent is answering.");
      break;
    case "text":
      mine.wait.text(mine.at_s);
      mine.turn.append(event.text);
      break;
    case "start":
      mine.sampleRate = event.sampleRate;
      sound.begin(mine.id, event.sampleRate);
      break;
    case "words":
      mine.turn.place(event.words);
      break;
    case "audio":
      mine.audio_s += event.samples.length / mine.sampleRate;
      sound.push(mine.id, event.samples);
      break;
    case "end":
      settle(mine);
      if (mine.over) enter("idle", "The answer has nothing to speak.");
      break;
  }
}

/** Nothing more will arrive; what has arrived is heard to its end. */
function settle(mine) {
  mine.settled = true;
  sound.end(mine.id);
  if (mine.audio_s === 0) mine.end(mine.failed ? "No answer was heard." : "");
}

/** A report of PcmQueue. */
function heard(mine, report) {
  if (mine.over) return mine.playback.show();
  if (report.played_s > 0) mine.wait.sound(mine.at_s - report.played_s + sound.latency_s);
  if (!mine.settled || !report.done) return;
  mine.turn.light(Infinity);
  mine.end(mine.failed ? "The answer broke off here." : "");
  enter("idle", mine.failed ? "" : `Done: ${seconds(mine.audio_s)} of speech.`);
}

function fail(mine, error) {
  if (mine.over || mine.failed) return;
  mine.failed = true;
  mine.aborter.abort();
  complain(error.message);
  settle(mine);
  if (!mine.over) return;
  if (mine.wait.text_s === null) element("prompt").value ||= mine.prompt; // to be sent again
  enter("idle", "");
}

// What the page shows

function say(words) {
  element("talk-status").textContent = words;
}

function complain(words) {
  element("talk-error").textContent = words;
}

/** @param {"idle" | "waiting"} state */
function enter(state, words) {
  element("hush").setAttribute("aria-disabled", String(state === "idle"));
  say(words);
  showFigures();
  if (state !== "idle" && !painting) paint();
}

let painting = 0;

function paint() {
  if (!answer.over) answer.turn.light(answer.playback.heard_s);
  if (painting % FRAMES_BETWEEN_FIGURES === 0) showFigures();
  painting = answer.over ? 0 : painting + 1;
  if (painting) requestAnimationFrame(paint);
}

function showFigures() {
  answer.playback.show();
  for (const mode of MODES) {
    const waiting = waits[mode] === answer.wait && !answer.over ? `${seconds(answer.at_s)}…` : "–";
    for (const what of ["text", "sound"]) {
      const wait_s = waits[mode]?.[`${what}_s`] ?? null;
      element(`${mode}-${what}`).textContent = wait_s === null ? waiting : seconds(wait_s, 2);
    }
  }
  const words = verdict(waits.bidi, waits.batch);
  if (words) element("verdict-of-modes").textContent = words;
}

// Wiring

element("agent").defaultValue = LOCAL_AGENT;
element("talk").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
element("prompt").addEventListener("keydown", (event) => {
  // While an input method composes a word, Enter is its own.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
element("hush").addEventListener("click", stop);
for (const touch of ["pointerdown", "keydown"]) {
  // Browsers allow sound from the first touch on; to start it takes a moment, in which a prompt is written.
  element("talk").addEventListener(touch, () => sound.start().catch(() => {}), { once: true });
}
document.addEventListener("keydown", (event) => {
  if (talking() && event.key === "Escape") stop();
});
onChange(() => {
  stop();
  new Playback().show();
});
