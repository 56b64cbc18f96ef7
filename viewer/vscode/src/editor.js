// The editor of recordings: a tab with the page of a server that lives as long as the tab.
"use strict";

const path = require("node:path");
const vscode = require("vscode");
const { failurePage, framePage, waitingPage } = require("./pages");
const { openSource } = require("./sources");
const { Server } = require("./server");

/** @typedef {vscode.CustomDocument} Recording */
/** @typedef {InstanceType<typeof Server>} RunningServer */

/** @implements {vscode.CustomReadonlyEditorProvider<Recording>} */
class RecordingEditor {
  /**
   * The file itself is read by the server alone, whatever its size.
   * @param {vscode.Uri} uri
   * @returns {Recording}
   */
  openCustomDocument(uri) {
    return { uri, dispose() {} };
  }

  /**
   * @param {Recording} recording
   * @param {vscode.WebviewPanel} panel
   */
  resolveCustomEditor({ uri }, panel) {
    /** @type {RunningServer | undefined} */
    let server;
    let isClosed = false;
    panel.webview.options = { enableScripts: true, localResourceRoots: [] };

    const show = async () => {
      server?.dispose();
      server = undefined;
      panel.webview.html = waitingPage(path.basename(uri.fsPath));
      /** @type {RunningServer | undefined} */
      let started;
      try {
        server = started = new Server(uri);
        const address = await started.address();
        if (isClosed || server !== started) return;
        panel.webview.html = framePage(address.toString(true));
        throw await started.ended;
      } catch (why) {
        // The tab is closed, or has another server.
        if (isClosed || server !== started) return;
        panel.webview.html = failurePage(/** @type {Error} */ (why).message);
      }
    };

    panel.webview.onDidReceiveMessage(async (message) => {
      if (message?.kind === "open") {
        await openSource(message.file, message.line, panel.viewColumn).catch((why) =>
          // VS Code refuses files that are no text.
          vscode.window.showWarningMessage(`${message.file}: ${why.message}`),
        );
      } else if (message?.kind === "again") void show();
      else if (message?.kind === "settings") {
        await vscode.commands.executeCommand("workbench.action.openSettings", "highwater.path");
      }
    });
    panel.onDidDispose(() => {
      isClosed = true;
      server?.dispose();
    });
    // Not awaited: VS Code shows the tab once this returns.
    void show();
  }
}

module.exports = { RecordingEditor };
