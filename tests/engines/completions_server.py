"""A real HTTP server of `/v1/completions`, over an engine of this process, that fails on order."""

import asyncio
import json
import select
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rollwise.sampling import Draw

CONTEXT = 64


class CompletionsServer:
    """Serves one model; what it draws hangs on prompt and seed alone, so it is drawn but once.

    Attributes:
        faults: What the next requests meet, one each: "busy" (429, come again after `retry_after`),
            "broken" (500), "garbage" (half a JSON text), "strange" (JSON, but no completion),
            "cut" (half an answer), "aborted" (an unknown finish reason), "odd" (no characters),
            "refused" (401), or "hang" (no answer until the client goes). None is no fault.
        requests, headers: Of all requests, in order of arrival.
        most: The most requests that were under way at a time.
        left: Is set once a client has gone while its request hung.
        hanging: Is released once for each request that begins to hang.
    """

    def __init__(self, engine):
        self.engine, self._lock, self._drawn = engine, threading.Lock(), {}
        self.forget()

        class Handler(_Handler):
            server_of_model = self

        self._http = _HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def forget(self):
        """Forget what was asked, and all faults."""
        self.faults, self.requests, self.headers = [], [], []
        self.retry_after, self.most, self._now = "0.01", 0, 0
        self.left, self.hanging = threading.Event(), threading.Semaphore(0)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def close(self):
        self._http.shutdown()
        self._http.server_close()

    def complete(self, prompt, seed):
        with self._lock:
            if (prompt, seed) not in self._drawn:
                answer = asyncio.run(self.engine.complete(Draw("", 0, seed), prompt))
                self._drawn[prompt, seed] = answer
            return self._drawn[prompt, seed]

    def begin(self, body, headers):
        """Note a request; returns the fault that it meets."""
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            self._now += 1
            self.most = max(self.most, self._now)
            return self.faults.pop(0) if self.faults else None

    def end(self):
        with self._lock:
            self._now -= 1


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads, block_on_close, request_queue_size = True, False, 64

    def handle_error(self, request, client_address):
        """A client that has gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.answer_to(body, self.server_of_model.begin(body, dict(self.headers)))

    def answer_to(self, body, fault):
        if fault == "hang":
            return self.hang()
        if fault == "busy":
            headers = {"Retry-After": self.server_of_model.retry_after}
            return self.send(429, {"error": "busy"}, **headers)
        if fault in ("broken", "refused"):
            text = f"you sent {self.headers['Authorization']}"
            return self.send(500 if fault == "broken" else 401, {"error": {"message": text}})
        if fault in ("garbage", "strange"):
            return self.send(200, {"choices": []} if fault == "strange" else '{"choices": [')
        if len(body["prompt"]) + body["max_tokens"] > CONTEXT:
            return self.send(400, {"error": {"message": f"the context is {CONTEXT} tokens"}})
        answer = {"object": "text_completion", "choices": [self.choice(body)]}
        if fault == "aborted":
            answer["choices"][0]["finish_reason"] = "abort"
        if fault == "odd":
            answer["choices"][0] = {"text": "\ud800" * body["max_tokens"], "finish_reason": "stop"}
        self.send(200, answer, cut=fault == "cut")

    def choice(self, body):
        drawn = self.server_of_model.complete(tuple(body["prompt"]), body["seed"])
        choice = {"text": drawn.text, "finish_reason": "length" if drawn.truncated else "stop"}
        if body.get("return_token_ids"):
            choice["token_ids"] = drawn.tokens
        if "logprobs" in body:
            choice["logprobs"] = {"token_logprobs": [float(value) for value in drawn.logprobs]}
        return choice

    def send(self, status, content, cut=False, **headers):
        self.server_of_model.end()
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = cut

    def hang(self):
        self.server_of_model.hanging.release()
        select.select([self.connection], [], [])  # readable: the client is gone
        self.server_of_model.end()
        self.server_of_model.left.set()
        self.close_connection = True
