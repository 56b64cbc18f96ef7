// What each line of code has live at the peak, as `highwater peak --by frame` answers.
"use strict";

const vscode = require("vscode");
const { run } = require("./program");

/** Lines that are listed; more do not help a reader. */
const MAX_LINES = 1000;

/**
 * A line of code and its live memory at the peak.
 * @typedef {{ file: string, line: number, functions: string[], bytes: number, blocks: number }} Line
 */

/**
 * The peak of a recording.
 * @typedef {{ bytes: number, text: string, recordedMs: number | undefined, lines: Line[] }} Peak
 */

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/**
 * Formats `bytes` as the program does: `5.67 GiB`, `2 MiB`, `512 B`.
 * @param {number} bytes
 */
function formatBytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  let unit = 0;
  while (unit + 1 < UNITS.length && bytes >= 1024 ** (unit + 2)) unit++;
  const value = bytes / 1024 ** (unit + 1);
  return `${Number.isInteger(value) ? value : value.toFixed(2)} ${UNITS[unit]}`;
}

/**
 * Reads a frame such as `path/model.py:184 forward`; none without a line. The first number that ends the text or is
 * followed by a space separates path and function.
 * @param {string} text
 */
function parseFrame(text) {
  const found = /^(.+?):([1-9]\d*)(?: (.*))?$/s.exec(text);
  return found ? { file: found[1], line: Number(found[2]), name: found[3] ?? "" } : undefined;
}

/**
 * Reads what `highwater peak --by frame --json` prints.
 * @param {string} json
 * @returns {Peak}
 */
function parsePeak(json) {
  const answer = JSON.parse(json);
  /** @type {Map<string, Line>} */
  const lines = new Map();
  for (const { key, bytes, blocks } of answer.groups) {
    const frame = parseFrame(key);
    if (!frame) continue;
    const { file, line, name } = frame;
    const known = lines.get(`${line} ${file}`) ?? { file, line, functions: [], bytes: 0, blocks: 0 };
    known.bytes += bytes;
    known.blocks += blocks;
    if (name) known.functions.push(name);
    lines.set(`${line} ${file}`, known);
  }
  const at = [`peak of device ${answer.device}`];
  if (answer.event !== null) at.push(`event ${answer.event.toLocaleString("en")}`);
  if (answer.step !== null) at.push(`step ${answer.step}`);
  if (answer.phase !== null) at.push(answer.phase);
  const text = `${formatBytes(answer.bytes)} ${answer.metric} at the ${at.join(", ")}`;
  const sorted = [...lines.values()].sort((a, b) => b.bytes - a.bytes);
  const recordedMs = answer.time_us > 0 ? answer.time_us / 1000 : undefined;
  return { bytes: answer.bytes, text, recordedMs, lines: sorted };
}

/**
 * Asks for the peak of the recording `uri`, while the user sees that it is being read.
 * @param {vscode.Uri} uri
 * @returns {Promise<Peak>}
 */
async function peakOf(uri) {
  const location = vscode.ProgressLocation.Notification;
  const title = `Reading ${uri.path.split("/").pop()}`;
  return vscode.window.withProgress({ location, title, cancellable: true }, async (_, token) => {
    return parsePeak(await run(uri, ["peak", "--by", "frame", "--json", "--top", String(MAX_LINES)], token));
  });
}

module.exports = { formatBytes, parseFrame, parsePeak, peakOf };
