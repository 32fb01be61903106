"""``python -m labkit_book.classroom --open`` on the teacher's laptop, ``--join ADDRESS WORD`` on a student's."""

import argparse
import json
import os
from pathlib import Path

from labkit_book.classroom.room import Room
from labkit_book.classroom.seat import join

parser = argparse.ArgumentParser(prog="python -m labkit_book.classroom", description=__doc__)
what = parser.add_mutually_exclusive_group(required=True)
what.add_argument("--open", nargs="?", const="", metavar="HOST", help="open a room, at this address if given")
what.add_argument("--join", nargs=2, metavar=("ADDRESS", "WORD"), help="take part")
parser.add_argument("--name", default="", help="for the pictures, by choice")
parser.add_argument("--room", default="", help="at which of several rooms or switches this laptop is")
given = parser.parse_args()
try:
    if given.join:
        join(given.join[0], given.join[1], given.name, given.room)
        os._exit(0)  # what is left of a stopped experiment keeps nobody waiting
    room = Room(given.open)
    print(f"python -m labkit_book.classroom --join {room.address} {room.word}", flush=True)
    prompt = "here. 1 links, 2 all-reduces, 3 training; NAME.json saves; Enter counts again; q closes: "
    while (asked := input(f"{len(room.here())} {prompt}").strip()) != "q":
        try:
            if asked.isdecimal():
                print("Done:", room.run(int(asked))["where"])
            elif asked.endswith(".json"):
                Path(asked).write_text(json.dumps(room.results), encoding="utf-8")
        except (RuntimeError, ValueError, OSError, KeyboardInterrupt) as error:
            print(repr(error))
    room.close()
except (OSError, ValueError) as error:
    parser.exit(1, f"{error}\n")
except (EOFError, KeyboardInterrupt):
    print()
