// Passes requests on to `highwater serve`, whose page may not be shown in a frame, as the editor shows it.
"use strict";

const http = require("node:http");

/**
 * Starts a relay on a free port of the loopback device. Only who knows the secret part of the address gets an answer. The
 * server's own check of the host's name is lifted: behind an editor's proxy the name may be any.
 * @param {URL} target the address of the server
 * @returns {Promise<{ port: number, close: () => void }>}
 */
async function relay(target) {
  const server = http.createServer((request, response) => {
    const { method, url } = request;
    const headers = { ...request.headers, host: target.host, connection: "close" };
    const asked = http.request(target.origin, { method, path: url, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, framed(answer.headers));
      answer.on("error", () => response.destroy()).pipe(response);
    });
    asked.on("error", () => {
      if (response.headersSent) response.destroy();
      else response.writeHead(502).end();
    });
    // The page is closed, or the tab.
    response.on("close", () => asked.destroy());
    request.pipe(asked);
  });
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(undefined));
  });
  const address = /** @type {import("node:net").AddressInfo} */ (server.address());
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { port: address.port, close };
}

/**
 * The header fields of an answer, without the rule against frames.
 * @param {http.IncomingHttpHeaders} headers
 */
function framed(headers) {
  const policy = headers["content-security-policy"];
  if (typeof policy !== "string") return headers;
  const rules = policy.split(";").filter((rule) => !rule.trim().startsWith("frame-ancestors"));
  return { ...headers, "content-security-policy": rules.join(";") };
}

module.exports = { relay };
