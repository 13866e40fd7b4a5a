// The wire to the voice agent: POST /invocations, which answers one prompt with a stream of events.
import { SpeechFailed, bytesOf, contentType, eventsOf, refusal, sentence } from "./answer.js";
import { PcmReassembler } from "./pcm.js";

export const LOCAL_AGENT = "http://127.0.0.1:8080";

const START = "uv run --extra agent python -m agent --local";
const THIS_MACHINE = ["127.0.0.1", "localhost"];

/** @param {string} text as a person writes it  @returns {URL} its routes are relative to it. Throws SpeechFailed. */
export function agentAddress(text) {
  const full = text.includes("://") ? text : `http://${text}`;
  const address = URL.canParse(full) ? new URL(full) : null;
  if (!/^https?:$/.test(address?.protocol)) throw new SpeechFailed(`The agent's address must look like ${LOCAL_AGENT}.`);
  if (address.protocol === "http:" && !THIS_MACHINE.includes(address.hostname)) {
    // The page's Content-Security-Policy has the same rule, but a browser does not tell a page that it applied it.
    throw new SpeechFailed("The agent must be on this machine (127.0.0.1 or localhost), or at an https address.");
  }
  if (!address.pathname.endsWith("/")) address.pathname += "/";
  return address;
}

/** An id of one conversation. The agent wants 33 characters or more. */
export function newConversationId() {
  // Not crypto.randomUUID: over plain http from another machine, browsers don't have it.
  return Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Have a prompt answered. Yields `{type: "begun"}` once the agent knows of the prompt, then as they come
 *  `{type: "text", text}`, `{type: "start", sampleRate}`, `{type: "words", words}`, `{type: "audio", samples}`, and
 *  `{type: "end"}` when the answer is whole. Throws SpeechFailed, and what `signal` was aborted with.
 *  @param {URL} address  @param fields of the agent's payload: prompt, mode, voice, speed, heard_s ... */
export async function* ask(address, conversationId, fields, signal) {
  let response;
  try {
    response = await fetch(new URL("invocations", address), {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "text/event-stream",
        "x-amzn-bedrock-agentcore-runtime-session-id": conversationId,
      },
      body: JSON.stringify({ ...fields, format: "pcm16", timestamps: true }),
      signal,
    });
  } catch (error) {
    throw signal.aborted ? error : new SpeechFailed(await whyNoAnswer(address));
  }
  if (!response.ok) throw new SpeechFailed(await refusal(response));
  const [type] = contentType(response);
  if (type !== "text/event-stream") throw new SpeechFailed(`The agent answered with ${type || "something"}, not events.`);
  try {
    yield* answer(response);
  } catch (error) {
    if (signal.aborted || error instanceof SpeechFailed) throw error;
    throw new SpeechFailed("The connection to the agent broke off in the middle of the answer.");
  }
}

async function* answer(response) {
  const pcm = new PcmReassembler();
  for await (const [, event] of eventsOf(response)) {
    switch (event.type) {
      case "agent_start":
        yield { type: "begun" };
        break;
      case "text_delta":
        yield { type: "text", text: event.text };
        break;
      case "audio_stream_start":
        if (event.format !== "pcm16") throw new SpeechFailed(`The agent speaks in ${event.format}, not in pcm16.`);
        yield { type: "start", sampleRate: event.sample_rate };
        break;
      case "audio_words":
        yield { type: "words", words: event.words };
        break;
      case "audio_chunk":
        yield { type: "audio", samples: pcm.push(bytesOf(event.data)) };
        break;
      case "agent_end":
        yield { type: "end" };
        return;
      case "error":
        throw new SpeechFailed(sentence(event.message));
    }
  }
}

/** A browser does not tell an agent that is away from one that refuses this page; whether something answers, it does. */
async function whyNoAnswer(address) {
  try {
    await fetch(new URL("ping", address), { mode: "no-cors" });
  } catch {
    return `The agent at ${address.host} cannot be reached. To start it: ${START}`;
  }
  return (
    `The agent at ${address.host} does not let this page talk to it. ` +
    `Start it with VOICE_AGENT_CORS_ORIGINS=${location.origin} in its environment.`
  );
}
