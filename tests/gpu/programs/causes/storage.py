# SPDX-License-Identifier: Apache-2.0
"""A slow store, in a process of its own: answers each request on a Unix socket after some milliseconds, any number at once.

Its readers wait in recv() without using a processor, as they do for a network file system."""

import pathlib
import socket
import socketserver
import subprocess
import sys
import threading
import time

BYTES = 4096


class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        while self.request.recv(1):
            time.sleep(self.server.latency_s)
            self.request.sendall(b"x" * BYTES)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 256


def start(name, latency_s):
    """Starts the store and waits until it answers; it ends with this process. Returns its socket's path."""
    path = pathlib.Path(name).absolute()
    child = subprocess.Popen([sys.executable, __file__, name, str(latency_s)], stdin=subprocess.PIPE)
    start.kept.append(child)
    while not path.exists():
        if child.poll() is not None:
            sys.exit("the store did not start")
        time.sleep(0.01)
    return str(path)


start.kept = []


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s


def read(s):
    """One read of the store: the caller waits in recv()."""
    s.sendall(b"r")
    left = BYTES
    while left:
        left -= len(s.recv(left))


def main():
    server = Server(sys.argv[1], Answer)
    server.latency_s = float(sys.argv[2])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
