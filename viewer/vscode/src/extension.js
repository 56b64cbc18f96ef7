// What the extension adds to VS Code: the editor of recordings, and its commands.
"use strict";

const path = require("node:path");
const vscode = require("vscode");
const { Annotations } = require("./annotations");
const { RecordingEditor } = require("./editor");
const { formatBytes, peakOf } = require("./peak");
const { endAll } = require("./server");
const { openSource } = require("./sources");

const EDITORS = ["highwater.recording", "highwater.compressed"];
const FILTERS = { Recordings: ["snap", "pickle", "pkl", "gz", "json", "html"], "All files": ["*"] };

/** @param {vscode.ExtensionContext} context */
function activate(context) {
  const annotations = new Annotations();
  const editor = new RecordingEditor();
  // The page keeps its view while another tab is in front.
  const options = { webviewOptions: { retainContextWhenHidden: true } };
  context.subscriptions.push(
    annotations,
    ...EDITORS.map((name) => vscode.window.registerCustomEditorProvider(name, editor, options)),
    vscode.commands.registerCommand("highwater.open", open),
    vscode.commands.registerCommand("highwater.peak", (uri) => showPeak(annotations, uri)),
    vscode.commands.registerCommand("highwater.hide", () => annotations.hide()),
  );
}

/** Asks for a recording. @returns {Promise<vscode.Uri | undefined>} */
async function choose() {
  const chosen = await vscode.window.showOpenDialog({ title: "Open recording", filters: FILTERS });
  return chosen?.[0];
}

/** The recording in front. @returns {vscode.Uri | undefined} */
function front() {
  const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
  const isRecording = input instanceof vscode.TabInputCustom && EDITORS.includes(input.viewType);
  return isRecording ? input.uri : undefined;
}

/** @param {vscode.Uri | undefined} uri */
async function open(uri) {
  const recording = uri ?? (await choose());
  if (recording) await vscode.commands.executeCommand("vscode.openWith", recording, EDITORS[0]);
}

/**
 * Shows the memory at the peak beside lines of code, and lists the lines to open one.
 * @param {InstanceType<typeof Annotations>} annotations
 * @param {vscode.Uri | undefined} uri
 */
async function showPeak(annotations, uri) {
  const recording = uri ?? front() ?? (await choose());
  if (!recording) return;
  try {
    const peak = await peakOf(recording);
    await annotations.show(peak, path.basename(recording.fsPath));
    const items = peak.lines.map((line) => ({
      label: formatBytes(line.bytes),
      description: `${line.file.split(/[\\/]/).pop()}:${line.line} ${line.functions[0] ?? ""}`,
      detail: line.file,
      line,
    }));
    if (items.length === 0) {
      await vscode.window.showInformationMessage(
        `${peak.text}; no block that is live there has a recorded line of code`,
      );
      return;
    }
    const chosen = await vscode.window.showQuickPick(items, {
      title: peak.text,
      matchOnDescription: true,
      matchOnDetail: true,
    });
    if (chosen) await openSource(chosen.line.file, chosen.line.line, undefined);
  } catch (why) {
    if (why instanceof vscode.CancellationError) return;
    const settings = "Open the settings";
    const answer = await vscode.window.showErrorMessage(/** @type {Error} */ (why).message, settings);
    if (answer === settings) await vscode.commands.executeCommand("workbench.action.openSettings", "highwater.path");
  }
}

module.exports = { activate, deactivate: endAll };
