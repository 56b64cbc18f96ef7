// The HTML of the editor: a frame with the page of `highwater serve`, or the reason why there is none.
"use strict";

const crypto = require("node:crypto");

/** @param {string} text */
function escaped(text) {
  return text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

/**
 * @param {string} body
 * @param {{ script: string, frames?: string }} parts
 */
function document(body, { script, frames = "'none'" }) {
  const nonce = crypto.randomBytes(16).toString("hex");
  const policy = `default-src 'none'; frame-src ${frames}; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${escaped(policy)}">
<style nonce="${nonce}">
html, body { height: 100%; margin: 0; padding: 0; overflow: hidden; }
iframe { display: block; width: 100%; height: 100%; border: 0; }
main { padding: 24px; overflow: auto; }
pre { white-space: pre-wrap; font-family: var(--vscode-editor-font-family); }
button { border: 0; padding: 6px; color: var(--vscode-button-foreground); background: var(--vscode-button-background); }
</style>
</head>
<body>
${body}
<script nonce="${nonce}">${script}</script>
</body>
</html>
`;
}

/**
 * Shows the page at `address`, and passes on which line of code it asks for.
 * @param {string} address
 */
function framePage(address) {
  const origin = new URL(address).origin;
  // The page learns that it can ask for lines. Nothing else but the page in the frame is heard.
  const script = `
const vscode = acquireVsCodeApi();
const frame = document.querySelector("iframe");
const server = ${JSON.stringify(origin)};
frame.addEventListener("load", () => frame.contentWindow.postMessage({ highwater: "editor" }, server));
addEventListener("message", ({ source, origin, data }) => {
  if (source !== frame.contentWindow || origin !== server) return;
  if (data?.highwater === "open") vscode.postMessage({ kind: "open", file: data.file, line: data.line });
});`;
  const body = `<iframe src="${escaped(address)}" title="Highwater" allow="clipboard-read; clipboard-write"></iframe>`;
  return document(body, { script, frames: origin });
}

/**
 * Says that the recording is being read.
 * @param {string} name
 */
function waitingPage(name) {
  return document(`<main><p>Reading ${escaped(name)}…</p></main>`, { script: "" });
}

/**
 * Shows why the recording cannot be shown, and what to do.
 * @param {string} why
 */
function failurePage(why) {
  const script = `
const vscode = acquireVsCodeApi();
for (const button of document.querySelectorAll("button")) {
  button.addEventListener("click", () => vscode.postMessage({ kind: button.id }));
}`;
  const buttons = `<button id="again">Try again</button> <button id="settings">Open the settings</button>`;
  return document(`<main><pre>${escaped(why)}</pre><p>${buttons}</p></main>`, { script });
}

module.exports = { failurePage, framePage, waitingPage };
