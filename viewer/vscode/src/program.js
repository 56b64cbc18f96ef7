// Finds the program `highwater`, starts it, and explains why it cannot be started.
"use strict";

const { spawn } = require("node:child_process");
const os = require("node:os");
const path = require("node:path");
const vscode = require("vscode");

/** What a command may print; the lines of a peak are a thousand at most. */
const MAX_OUTPUT_BYTES = 64 << 20;
/** Bytes at the end of the error output that are kept for messages. */
const MAX_ERROR_BYTES = 8 << 10;

/**
 * The program that opens `uri`: the setting, else `highwater` on the PATH.
 * @param {vscode.Uri} uri
 */
function program(uri) {
  const setting = vscode.workspace.getConfiguration("highwater", uri).get("path", "").trim();
  if (setting === "") return "highwater";
  if (/^~[\\/]/.test(setting)) return path.join(os.homedir(), setting.slice(2));
  if (path.isAbsolute(setting) || !/[\\/]/.test(setting)) return setting;
  const folder = vscode.workspace.getWorkspaceFolder(uri) ?? vscode.workspace.workspaceFolders?.[0];
  return folder ? path.join(folder.uri.fsPath, setting) : setting;
}

/**
 * Starts a command on the recording `uri`, which is on this machine. `ended` has the status, and what to tell the user.
 * @param {vscode.Uri} uri
 * @param {string[]} words
 */
function start(uri, words) {
  if (uri.scheme !== "file") {
    throw new Error(`cannot open ${uri.toString()}: highwater reads files on the disk only; save it there first`);
  }
  const name = program(uri);
  const child = spawn(name, [...words, uri.fsPath], { stdio: "pipe", windowsHide: true });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (errors = (errors + text).slice(-MAX_ERROR_BYTES)));
  /** @type {Promise<{ code: number | null, why: Error }>} */
  const ended = new Promise((resolve) => {
    child.once("error", (why) => resolve({ code: null, why: new Error(reason(name, why)) }));
    child.once("close", (code, signal) => {
      const end = signal ? `ended by ${signal}` : `ended with status ${code}`;
      resolve({ code, why: new Error(errors.trim() || `highwater ${words[0]} ${end}`) });
    });
  });
  return { child, ended };
}

/**
 * @param {string} name
 * @param {NodeJS.ErrnoException} why
 */
function reason(name, why) {
  if (why.code !== "ENOENT") return `cannot start ${name}: ${why.message}; check the setting highwater.path`;
  const place = name === "highwater" ? "it is not on the PATH of VS Code" : "there is no such file";
  return `cannot start ${name}: ${place}; install it (pip install highwater-gpu), or set highwater.path to the program`;
}

/**
 * Runs a command on the recording `uri`, and returns its output.
 * @param {vscode.Uri} uri
 * @param {string[]} words
 * @param {vscode.CancellationToken} token
 * @returns {Promise<string>}
 */
async function run(uri, words, token) {
  const { child, ended } = start(uri, words);
  const cancelled = token.onCancellationRequested(() => child.kill());
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text) => {
    output += text;
    if (output.length > MAX_OUTPUT_BYTES) child.kill();
  });
  const { code, why } = await ended;
  cancelled.dispose();
  if (token.isCancellationRequested) throw new vscode.CancellationError();
  if (code !== 0) throw why;
  return output;
}

module.exports = { run, start };
