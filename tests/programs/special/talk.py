"""Python's own servers and pipes on names in the working directory, as often as is said."""
import asyncio
import multiprocessing
import multiprocessing.connection
import os
import socket
import socketserver
import stat
import sys
import threading


def fifo(number):
    name = f"fifo-{number}"
    os.mkfifo(name, 0o640)
    if os.fork() == 0:
        with open(name, "w") as writer:
            writer.write("words\n" * 2000)
        os._exit(0)
    with open(name) as reader:
        print("fifo:", len(reader.read()), stat.filemode(os.stat(name).st_mode))
    os.wait()
    os.rename(name, name + "-kept")


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"echo " + self.rfile.readline())


def server(number):
    name = f"server-{number}"
    with socketserver.ThreadingUnixStreamServer(name, Echo) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)
            client.sendall(b"socketserver\n")
            print(client.makefile().readline(), end="", flush=True)
            print(client.getpeername(), serving.socket.getsockname())
        serving.shutdown()
    os.unlink(name)


def called(name):
    with multiprocessing.connection.Client(name) as connection:
        connection.send({"from": "a process", "list": list(range(1000))})


def listener(number):
    name = f"listener-{number}"
    with multiprocessing.connection.Listener(name, "AF_UNIX") as listening:
        process = multiprocessing.Process(target=called, args=(name,))
        process.start()
        with listening.accept() as connection:
            print("listener:", connection.recv()["from"], listening.address == name)
        process.join()


async def talk(number):
    async def answer(reader, writer):
        writer.write(b"echo " + await reader.readline())
        writer.close()

    name = f"asyncio-{number}"
    serving = await asyncio.start_unix_server(answer, name)
    reader, writer = await asyncio.open_unix_connection(name)
    writer.write(b"asyncio\n")
    print("asyncio:", (await reader.readline()).decode(), end="")
    writer.close()
    serving.close()
    os.unlink(name)


for round in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
    fifo(round)
    server(round)
    listener(round)
    asyncio.run(talk(round))
