// Shows beside lines of code what they have live at the peak of a recording.
"use strict";

const fs = require("node:fs/promises");
const vscode = require("vscode");
const { formatBytes } = require("./peak");
const { locate } = require("./sources");

/** @typedef {import("./peak").Line} Line */
/** @typedef {import("./peak").Peak} Peak */

class Annotations {
  constructor() {
    this.type = vscode.window.createTextEditorDecorationType({
      after: { color: new vscode.ThemeColor("editorCodeLens.foreground"), margin: "0 0 0 3em" },
      rangeBehavior: vscode.DecorationRangeBehavior.ClosedOpen,
    });
    /** The lines of each file, by path. @type {Map<string, Line[]>} */
    this.lines = new Map();
    /** @type {Peak | undefined} */
    this.peak = undefined;
    /** @type {string} */
    this.recording = "";
    this.listener = vscode.window.onDidChangeVisibleTextEditors((editors) =>
      Promise.all(editors.map((one) => this.draw(one))),
    );
  }

  /**
   * @param {Peak} peak
   * @param {string} recording its name
   */
  async show(peak, recording) {
    /** @type {Map<string, Line[]>} */
    const lines = new Map();
    for (const [file, ofFile] of grouped(peak.lines)) {
      const uri = await locate(file);
      if (uri) lines.set(uri.fsPath, [...(lines.get(uri.fsPath) ?? []), ...ofFile]);
    }
    this.peak = peak;
    this.recording = recording;
    this.lines = lines;
    await this.drawAll();
  }

  async hide() {
    this.peak = undefined;
    this.lines = new Map();
    await this.drawAll();
  }

  async drawAll() {
    await vscode.commands.executeCommand("setContext", "highwater.isPeakShown", this.peak !== undefined);
    await Promise.all(vscode.window.visibleTextEditors.map((editor) => this.draw(editor)));
  }

  /** @param {vscode.TextEditor} editor */
  async draw(editor) {
    const { document } = editor;
    const lines = document.uri.scheme === "file" ? this.lines.get(document.uri.fsPath) : undefined;
    const peak = this.peak;
    if (!lines || !peak) return editor.setDecorations(this.type, []);
    const recordedMs = peak.recordedMs ?? Infinity;
    const isChanged = await fs.stat(document.uri.fsPath).then(
      (facts) => facts.mtimeMs > recordedMs,
      () => false,
    );
    // Meanwhile another recording may be shown, or none.
    if (peak !== this.peak) return;
    const there = lines.filter(({ line }) => line <= document.lineCount);
    editor.setDecorations(
      this.type,
      there.map((line) => this.decoration(line, document, isChanged)),
    );
  }

  /**
   * @param {Line} line
   * @param {vscode.TextDocument} document
   * @param {boolean} isChanged
   * @returns {vscode.DecorationOptions}
   */
  decoration({ line, functions, bytes, blocks }, document, isChanged) {
    const peak = /** @type {Peak} */ (this.peak);
    const share = ((100 * bytes) / peak.bytes).toFixed(1);
    const count = blocks === 1 ? "1 block" : `${blocks.toLocaleString("en")} blocks`;
    const hover = new vscode.MarkdownString();
    hover.appendText(`${formatBytes(bytes)} in ${count}, ${share} % of ${peak.text}. Recording: ${this.recording}.`);
    for (const name of functions) hover.appendText(`\n\n${name}`);
    if (isChanged) hover.appendText("\n\nThis file changed after the recording; lines may have moved.");
    const end = document.lineAt(line - 1).range.end;
    const contentText = `${formatBytes(bytes)} at the peak`;
    return { range: new vscode.Range(end, end), hoverMessage: hover, renderOptions: { after: { contentText } } };
  }

  dispose() {
    this.listener.dispose();
    this.type.dispose();
  }
}

/** @param {Line[]} lines */
function grouped(lines) {
  /** @type {Map<string, Line[]>} */
  const files = new Map();
  for (const line of lines) files.set(line.file, [...(files.get(line.file) ?? []), line]);
  return files;
}

module.exports = { Annotations };
