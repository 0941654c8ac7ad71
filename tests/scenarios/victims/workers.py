# SPDX-License-Identifier: Apache-2.0
"""Two workers of multiprocessing that compute while the program uses the GPU: workers.py FOLDER METHOD SECONDS, FOLDER that of
train.py, METHOD spawn or forkserver. The line that the test looks for ends in a mark of its own."""

import multiprocessing
import sys
import time


def crunch(until):
    n = 0
    while time.monotonic() < until:
        for i in range(2000):
            n += i * i  # CRUNCH
    return n


def work(ready, seconds):
    ready.wait()
    crunch(time.monotonic() + seconds)


def main():
    sys.path.insert(0, sys.argv[1])
    import train

    device = train.Device()
    kernel = device.kernel("step", 20)
    context = multiprocessing.get_context(sys.argv[2])
    ready = context.Barrier(3)
    workers = [context.Process(target=work, args=(ready, float(sys.argv[3]))) for _ in range(2)]
    for worker in workers:
        worker.start()
    print("one", workers[0].pid, "two", workers[1].pid, flush=True)
    ready.wait()
    while any(worker.is_alive() for worker in workers):
        device.launch(kernel)
        device.synchronize()
        time.sleep(0.01)
    for worker in workers:
        worker.join()
    print("done", flush=True)


if __name__ == "__main__":
    main()
