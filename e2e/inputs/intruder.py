"""Another user's process that talks to a control socket.

usage: intruder.py SOCKET VERSION

Prints what comes of each request: the error of the connection, or the answer.
"""

import json
import socket
import sys

JOIN = {
    "version": sys.argv[2],
    "ram": {"least_bytes": 64 << 20, "most_bytes": 64 << 20},
    "group": None,
    "run_dir": "/tmp",
    "quiet": True,
    "pressure_file": None,
    "evict_all_every": None,
}
for request in ["status", "finish", {"swapoff": "/"}, {"swapon": "/tmp"}, {"runstatus": 1}, {"allowlast": 1},
                {"join": JOIN}]:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(sys.argv[1])
            connection.settimeout(5)
            try:
                connection.sendall(json.dumps(request).encode() + b"\n")
            except BrokenPipeError:
                pass  # Refused before it has asked. It can still read why.
            print(connection.recv(1 << 16).decode().strip() or "nothing")
    except OSError as error:
        print(type(error).__name__)
