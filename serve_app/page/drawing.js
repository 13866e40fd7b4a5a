// The timeline as a picture. What it shows is timeline.js's; how it looks is here and in the colours of style.css.
import { markEvery } from "./timeline.js";

const LANES = ["Text is sent", "Audio arrives", "Speaks", "Waiting to be heard", "In batch"];
const LANE_PX = 48;
const LABEL_PX = 16;
const BAR_PX = 20;
const TEXT_LANE = 0;
const ARRIVAL_LANE = 1;
const SPEECH_LANE = 2;
const BUFFER_LANE = 3;
const BATCH_LANE = 4;

/** Draw both tracks, either of which may be null, up to `now_s` while something is going on (null: nothing is). */
export function draw(canvas, { streamed, batch }, now_s) {
  const pen = new Pen(canvas);
  const ends_s = [streamed, batch].map((track) => track?.end_s ?? 0);
  pen.scale(Math.max(1, now_s ?? 0, ...ends_s));
  pen.axis();
  if (streamed) drawStreamed(pen, streamed, now_s);
  if (batch) drawBatch(pen, batch, now_s);
}

function drawStreamed(pen, track, now_s) {
  for (const { at_s } of track.texts) pen.tick(TEXT_LANE, at_s, pen.colours.ink);
  for (const { at_s } of track.arrivals) pen.tick(ARRIVAL_LANE, at_s, pen.colours.stream);
  const first_s = track.firstAudio_s ?? now_s ?? 0;
  pen.hatch(SPEECH_LANE, 0, first_s, pen.colours.stream);
  drawSpeech(pen, SPEECH_LANE, track, pen.colours.stream, pen.colours.streamPale);
  for (const segment of track.segments) {
    pen.dot(ARRIVAL_LANE, segment.at_s, pen.colours.stream);
    if (segment.heard_s !== null) pen.link(segment.at_s, ARRIVAL_LANE, segment.heard_s, SPEECH_LANE);
  }
  for (const { to_s } of track.playing.slice(0, -1)) pen.tick(SPEECH_LANE, to_s, pen.colours.bad);
  pen.area(BUFFER_LANE, track.levels);
  if (track.firstAudio_s !== null) pen.flag(SPEECH_LANE, first_s, pen.colours.stream);
}

function drawBatch(pen, track, now_s) {
  const first_s = track.firstAudio_s ?? now_s ?? track.stopped_s ?? 0;
  pen.hatch(BATCH_LANE, 0, first_s, pen.colours.batch);
  drawSpeech(pen, BATCH_LANE, track, pen.colours.batch, pen.colours.batchPale);
  if (track.firstAudio_s !== null) pen.flag(BATCH_LANE, first_s, pen.colours.batch);
}

function drawSpeech(pen, lane, track, colour, pale) {
  const rest_s = track.stopped_s === null ? track.audio_s - track.played_s : 0;
  const heard_s = track.playing.at(-1)?.to_s ?? track.firstAudio_s;
  if (rest_s > 0) pen.bar(lane, heard_s, heard_s + rest_s, pale);
  for (const { from_s, to_s } of track.playing) pen.bar(lane, from_s, to_s, colour);
}

class Pen {
  #pen;
  #width;
  #span_s = 1;

  constructor(canvas) {
    const density = window.devicePixelRatio || 1;
    this.#width = canvas.clientWidth;
    const [width, height] = [Math.round(this.#width * density), Math.round(canvas.clientHeight * density)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    this.#pen = canvas.getContext("2d");
    this.#pen.setTransform(density, 0, 0, density, 0, 0);
    this.#pen.clearRect(0, 0, this.#width, canvas.clientHeight);
    this.#pen.font = `12px ${getComputedStyle(canvas).fontFamily}`;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`);
    this.colours = {
      ink: colour("ink"),
      soft: colour("soft"),
      line: colour("line"),
      stream: colour("stream"),
      streamPale: colour("stream-pale"),
      batch: colour("batch"),
      batchPale: colour("batch-pale"),
      bad: colour("bad"),
    };
  }

  scale(span_s) {
    this.#span_s = span_s;
  }

  axis() {
    const bottom = LANES.length * LANE_PX;
    const every_s = markEvery(this.#span_s, Math.max(2, this.#width / 90));
    this.#pen.lineWidth = 1;
    for (let index = 0; index * every_s <= this.#span_s; index += 1) {
      const at_s = index * every_s;
      this.#line(this.#x(at_s), 0, this.#x(at_s), bottom + 4, this.colours.line);
      this.#text(`${Number(at_s.toFixed(3))} s`, this.#x(at_s), bottom + 18, this.colours.soft);
    }
    LANES.forEach((name, lane) => this.#text(name, 0, lane * LANE_PX + 12, this.colours.soft));
  }

  tick(lane, at_s, colour) {
    this.#pen.fillStyle = colour;
    this.#pen.fillRect(this.#x(at_s) - 0.75, this.#top(lane), 1.5, BAR_PX);
  }

  dot(lane, at_s, colour) {
    this.#pen.fillStyle = colour;
    this.#pen.beginPath();
    this.#pen.arc(this.#x(at_s), this.#top(lane) + BAR_PX / 2, 4, 0, 2 * Math.PI);
    this.#pen.fill();
  }

  bar(lane, from_s, to_s, colour) {
    this.#pen.fillStyle = colour;
    this.#pen.beginPath();
    this.#pen.roundRect(this.#x(from_s), this.#top(lane), Math.max(1, this.#x(to_s) - this.#x(from_s)), BAR_PX, 3);
    this.#pen.fill();
  }

  /** Waiting: nothing is heard. */
  hatch(lane, from_s, to_s, colour) {
    const [left, right, top] = [this.#x(from_s), this.#x(to_s), this.#top(lane)];
    if (right - left < 2) return;
    this.#pen.save();
    this.#pen.beginPath();
    this.#pen.rect(left, top, right - left, BAR_PX);
    this.#pen.clip();
    this.#pen.globalAlpha = 0.5;
    for (let x = left - BAR_PX; x < right; x += 7) this.#line(x, top + BAR_PX, x + BAR_PX, top, colour);
    this.#pen.restore();
  }

  /** From a sentence's arrival to the moment at which it is heard. */
  link(from_s, fromLane, to_s, toLane) {
    this.#pen.globalAlpha = 0.55;
    const [top, bottom] = [this.#top(fromLane) + BAR_PX / 2, this.#top(toLane)];
    this.#line(this.#x(from_s), top, this.#x(to_s), bottom, this.colours.stream);
    this.#pen.globalAlpha = 1;
    this.#pen.fillStyle = this.colours.soft;
    this.#pen.fillRect(this.#x(to_s) - 0.5, bottom, 1, BAR_PX);
  }

  /** The first audio; its time stands beside the lane's name. */
  flag(lane, at_s, colour) {
    const [x, top] = [this.#x(at_s), this.#top(lane)];
    this.#pen.lineWidth = 2;
    this.#line(x, top - 3, x, top + BAR_PX + 3, colour);
    this.#pen.lineWidth = 1;
    const after = this.#pen.measureText(`${LANES[lane]} `).width;
    this.#text(`from ${at_s.toFixed(2)} s`, after, lane * LANE_PX + 12, colour);
  }

  area(lane, levels) {
    if (levels.length < 2) return;
    const [base, top] = [this.#top(lane) + BAR_PX, this.#top(lane)];
    const highest_s = Math.max(1, ...levels.map(({ buffered_s }) => buffered_s));
    this.#pen.fillStyle = this.colours.streamPale;
    this.#pen.strokeStyle = this.colours.stream;
    this.#pen.beginPath();
    this.#pen.moveTo(this.#x(levels[0].at_s), base);
    for (const { at_s, buffered_s } of levels) {
      this.#pen.lineTo(this.#x(at_s), base - (base - top) * (buffered_s / highest_s));
    }
    this.#pen.lineTo(this.#x(levels.at(-1).at_s), base);
    this.#pen.fill();
    this.#pen.stroke();
    this.#text(`at most ${highest_s.toFixed(1)} s`, this.#x(levels.at(-1).at_s) + 6, base, this.colours.soft);
  }

  #top(lane) {
    return lane * LANE_PX + LABEL_PX + 2;
  }

  #x(at_s) {
    return 4 + (at_s / this.#span_s) * (this.#width - 8);
  }

  #line(x0, y0, x1, y1, colour) {
    this.#pen.strokeStyle = colour;
    this.#pen.beginPath();
    this.#pen.moveTo(x0, y0);
    this.#pen.lineTo(x1, y1);
    this.#pen.stroke();
  }

  #text(words, x, y, colour) {
    this.#pen.fillStyle = colour;
    const width = this.#pen.measureText(words).width;
    this.#pen.fillText(words, Math.max(0, Math.min(x, this.#width - width)), y);
  }
}
