// A server for work on the page: the built page from dist/, and everything else from a running `ridgepoint serve`.
// `node dev.mjs [http://127.0.0.1:8080]`; every change of src/ builds anew.

import { createReadStream, existsSync, statSync, watch } from "node:fs";
import http from "node:http";
import path from "node:path";
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const root = path.dirname(fileURLToPath(import.meta.url));
const upstream = new URL(process.argv[2] ?? "http://127.0.0.1:8080");
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".woff2": "font/woff2",
  ".txt": "text/plain",
};

let timer = 0;
watch(path.join(root, "src"), { recursive: true }, () => {
  clearTimeout(timer);
  timer = setTimeout(() => spawn(process.execPath, [path.join(root, "build.mjs")], { stdio: "inherit" }), 100);
});

http
  .createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    const file = path.join(root, "dist", pathname === "/" ? "index.html" : path.normalize(pathname));
    if (existsSync(file) && statSync(file).isFile()) {
      response.writeHead(200, {
        "Content-Type": TYPES[path.extname(file)] ?? "application/octet-stream",
        "Content-Security-Policy": "default-src 'self'",
      });
      createReadStream(file).pipe(response);
      return;
    }
    const onward = http.request(
      {
        host: upstream.hostname,
        port: upstream.port,
        path: request.url,
        method: request.method,
        headers: { ...request.headers, host: upstream.host },
      },
      (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      },
    );
    onward.on("error", (error) => response.writeHead(502).end(String(error)));
    request.pipe(onward);
  })
  .listen(8001, "127.0.0.1", () => console.log(`http://127.0.0.1:8001 with the API of ${upstream.origin}`));
