// Finds the files of recorded lines on this machine, and opens them.
"use strict";

const fs = require("node:fs/promises");
const path = require("node:path");
const vscode = require("vscode");

/** @param {string} file */
async function isFile(file) {
  return fs.stat(file).then(
    (facts) => facts.isFile(),
    () => false,
  );
}

/**
 * The path without `.` and `..` if it is an absolute one of this machine: a recording may come from anywhere and name any
 * path.
 * @param {string} file
 * @returns {string | undefined}
 */
function localPath(file) {
  if (!path.isAbsolute(file) || file.includes("\0")) return undefined;
  const normal = path.normalize(file);
  return /^([\\/]{2}|\/(net|proc|sys|dev)\/)/.test(normal) || /^[\\/]{2}/.test(file) ? undefined : normal;
}

/**
 * The file of a recorded line: at its own path, else, if it was recorded elsewhere, the file of the workspace whose
 * path ends alike, with the longest common end.
 * @param {string} file
 * @returns {Promise<vscode.Uri | undefined>}
 */
async function locate(file) {
  const local = localPath(file);
  if (local !== undefined && (await isFile(local))) return vscode.Uri.file(local);
  const parts = file.split(/[\\/]+/).filter((part) => part !== "" && part !== ".");
  if (parts.includes("..") || file.includes("\0")) return undefined;
  for (let from = 0; from < parts.length; from++) {
    for (const folder of vscode.workspace.workspaceFolders ?? []) {
      const found = path.join(folder.uri.fsPath, ...parts.slice(from));
      if (folder.uri.scheme === "file" && (await isFile(found))) return vscode.Uri.file(found);
    }
  }
  return undefined;
}

/**
 * Opens a recorded line beside the editor in `column`.
 * @param {unknown} file
 * @param {unknown} line from 1
 * @param {vscode.ViewColumn | undefined} column
 */
async function openSource(file, line, column) {
  if (typeof file !== "string" || typeof line !== "number" || !Number.isInteger(line) || line < 1) return;
  const uri = await locate(file);
  if (!uri) {
    const advice = "open the folder that has it as the workspace";
    await vscode.window.showWarningMessage(
      `${file}: there is no such file on this machine or in the workspace; ${advice}`,
    );
    return;
  }
  const selection = new vscode.Range(line - 1, 0, line - 1, 0);
  const viewColumn = column === vscode.ViewColumn.One ? vscode.ViewColumn.Two : vscode.ViewColumn.One;
  await vscode.window.showTextDocument(uri, { selection, viewColumn, preview: true });
}

module.exports = { locate, openSource };
