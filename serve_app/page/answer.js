// What a POST /invocations answers, as one stream of events whatever shape it came in. The shape is read off the
// answer's content type: a server or a proxy on the way may send another one than was asked for.
import { PcmReassembler, WavReader } from "./pcm.js";
import { SseParser } from "./sse.js";

/** The server, or something on the way to it, could not answer. The message is for a person. */
export class SpeechFailed extends Error {}

/** Yields `{type: "start", sampleRate}`, then `{type: "audio", samples}` and `{type: "words", words}`, then
 *  `{type: "end"}`. @param {Response} response  Throws SpeechFailed. */
export async function* readAnswer(response) {
  const [type, rate] = contentType(response);
  if (!response.ok) throw new SpeechFailed(await refusal(response));
  if (type === "text/event-stream") yield* fromEvents(response);
  else if (type === "audio/wav") yield* fromWav(chunksOf(response));
  else if (type === "audio/pcm") yield* fromPcm(chunksOf(response), rate);
  else throw new SpeechFailed(`The server answered with ${type || "something"} that this page cannot play.`);
}

/** @returns {[string, number]} the type, and the rate that it names, or else the model's */
export function contentType(response) {
  const header = response.headers.get("content-type") ?? "";
  const [type, ...parameters] = header.toLowerCase().split(";").map((part) => part.trim());
  const rate = parameters.find((parameter) => parameter.startsWith("rate="));
  return [type, rate ? Number(rate.slice("rate=".length)) : 24000];
}

/** Why an answer is none, in its own words where it has some. */
export async function refusal(response) {
  if (contentType(response)[0] === "application/json") {
    const { error } = await response.json();
    if (typeof error === "string") return sentence(error);
    if (typeof error?.message === "string") return sentence(error.message);
  }
  return `The server answered with status ${response.status}.`;
}

/** A server's message with a capital letter and a full stop. */
export function sentence(message) {
  const text = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

async function* chunksOf(response) {
  const reader = response.body.getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
  } finally {
    reader.cancel().catch(() => {}); // whoever stops listening stops the transfer; one that failed has stopped
  }
}

async function* fromPcm(chunks, sampleRate) {
  const pcm = new PcmReassembler();
  yield { type: "start", sampleRate };
  for await (const bytes of chunks) yield { type: "audio", samples: pcm.push(bytes) };
  yield { type: "end" };
}

async function* fromWav(chunks) {
  const wav = new WavReader();
  const pcm = new PcmReassembler();
  let started = false;
  for await (const bytes of chunks) {
    const audio = wav.push(bytes);
    if (!audio.length) continue;
    if (!started) yield { type: "start", sampleRate: wav.sampleRate };
    started = true;
    yield { type: "audio", samples: pcm.push(audio) };
  }
  if (!started) throw new SpeechFailed("The server's answer ended before its first sample.");
  yield { type: "end" };
}

async function* fromEvents(response) {
  const pcm = new PcmReassembler();
  for await (const [name, event] of eventsOf(response)) {
    switch (name) {
      case "audio_stream_start":
        yield { type: "start", sampleRate: event.sample_rate };
        break;
      case "audio_words":
        yield { type: "words", words: event.words };
        break;
      case "audio_chunk":
        yield { type: "audio", samples: pcm.push(bytesOf(event.data)) };
        break;
      case "audio_stream_end":
        yield { type: "end" };
        return;
      case "error":
        throw new SpeechFailed(sentence(event.message));
    }
  }
}

/** The events of a stream, each `[name, data]`. Its reader leaves at the last one: the stream's own end, before that,
 *  is a failure. Throws SpeechFailed. */
export async function* eventsOf(response) {
  const parser = new SseParser();
  for await (const bytes of chunksOf(response)) {
    for (const { name, data } of parser.push(bytes)) yield [name, decoded(data)];
  }
  throw new SpeechFailed(`The connection ended in the middle of ${parser.end() ? "an event" : "the answer"}.`);
}

function decoded(data) {
  let event = null;
  try {
    event = JSON.parse(data);
  } catch {
    // as null, which is JSON, but no event either
  }
  if (event === null) throw new SpeechFailed("The server sent an event that is not JSON.");
  return event;
}

/** @param {string} base64 */
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
