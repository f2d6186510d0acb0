#!/usr/bin/env python3
"""A client of cuzk.v1.ProvingEngine that shares no code with the server.

It knows the contract from the proto file alone, which it compiles into a folder of
its own at every start, and gRPC from grpcio. Request files go to a server over TCP
and over a unix socket, by Prove and by SubmitProof with AwaitProof: each file is
sent in all four ways. Each time a file is sent under one name, so that the first
call makes the proof and the others are told of the same job; with --fresh every call
has a name of its own and makes a proof of its own.

Proofs go to OUT/<request>-<transport>-<way>.proof; every field of every answer goes
to OUT/report.json, bytes in hexadecimal. Standard output has a line a call. The exit
code is 1 if a call did not end with a proof.
"""

import argparse
import base64
import contextlib
import importlib
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator, MutableSequence

import grpc
from google.protobuf.message import Message
from grpc_tools import protoc

PROTO = "cuzk/v1/proving_engine.proto"
# What the known clients set.
MESSAGE_BYTES_MAX = 256 << 20
# A wait that is over before any proof is made.
EARLY_MS = 1

WAYS = [("tcp", "prove"), ("unix", "submit"), ("tcp", "submit"), ("unix", "prove")]


def compile_contract(folder: pathlib.Path, into: str):
    """The message and service modules of the proto file."""
    arguments = ["protoc", f"-I{folder}", f"--python_out={into}", f"--grpc_python_out={into}"]
    if protoc.main([*arguments, PROTO]) != 0:
        sys.exit(f"{folder / PROTO} does not compile")
    sys.path.insert(0, into)
    module = PROTO.removesuffix(".proto").replace("/", ".")
    return importlib.import_module(f"{module}_pb2"), importlib.import_module(f"{module}_pb2_grpc")


def plain(value):
    """A message as JSON has it: every field, also those at their defaults."""
    if isinstance(value, Message):
        return {field.name: shown(field, getattr(value, field.name)) for field in value.DESCRIPTOR.fields}
    return value.hex() if isinstance(value, bytes) else value


def shown(field, value):
    """A field's value as JSON has it; enums by name."""
    if isinstance(value, MutableSequence):
        return [shown(field, item) for item in value]
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return plain(value)


def read_request(contract, path: pathlib.Path):
    """The message that a request file stands for: bytes in base64, enums by name."""
    message = contract.SubmitProofRequest()
    for name, value in json.loads(path.read_text())["request"].items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.enum_type is not None:
            value = field.enum_type.values_by_name[value].number
        elif isinstance(value, list):
            getattr(message, name).extend(base64.b64decode(item, validate=True) for item in value)
            continue
        elif field.type == field.TYPE_BYTES:
            value = base64.b64decode(value, validate=True)
        setattr(message, name, value)
    return message


@contextlib.contextmanager
def connect(target: str, service) -> Iterator:
    """A stub of the service."""
    options = [
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ]
    if target.startswith("unix:"):
        # Else the path is sent as the authority, which servers refuse.
        options.append(("grpc.default_authority", "localhost"))
    with grpc.insecure_channel(target, options=options) as channel:
        yield service.ProvingEngineStub(channel)


def prove(contract, stub, message) -> dict:
    """One call that ends with the job."""
    answer = stub.Prove(contract.ProveRequest(submit=message))
    return {"result": answer.result}


def submit(contract, stub, message) -> dict:
    """Submits, waits too short, looks at the queue until work has begun, waits."""
    job = stub.SubmitProof(message)
    early = contract.AwaitProofRequest(job_id=job.job_id, timeout_ms=EARLY_MS)
    steps = {"job": job, "early": stub.AwaitProof(early)}
    kind = contract.ProofKind.Name(message.proof_kind)
    ended = steps["early"].status != contract.AwaitProofResponse.TIMEOUT
    while not ended:
        steps["during"] = stub.GetStatus(contract.GetStatusRequest())
        queues = {queue.proof_kind: queue for queue in steps["during"].queues}
        if queues[kind].in_progress > 0:
            break
        ended = stub.AwaitProof(early).status != contract.AwaitProofResponse.TIMEOUT
    steps["result"] = stub.AwaitProof(contract.AwaitProofRequest(job_id=job.job_id))
    return steps


def call(contract, stub, way: str, message) -> dict:
    """A call's answers and how long they took here."""
    begun = time.monotonic()
    steps = prove(contract, stub, message) if way == "prove" else submit(contract, stub, message)
    wall_ms = (time.monotonic() - begun) * 1000
    return {"wall_ms": wall_ms} | {step: plain(answer) for step, answer in steps.items()}


def refusals(contract, stub) -> dict:
    """What the server says to calls that it cannot answer."""
    empty = contract.SubmitProofRequest(proof_kind=contract.WINNING_POST)
    calls = {
        "unknown job": lambda: stub.AwaitProof(contract.AwaitProofRequest(job_id="none")),
        "no request": lambda: stub.Prove(contract.ProveRequest()),
        "empty request": lambda: stub.SubmitProof(empty),
    }
    said = {}
    for name, ask in calls.items():
        try:
            said[name] = f"answered: {ask()}"
        except grpc.RpcError as error:
            said[name] = f"{error.code().name}: {error.details()}"
    return said


def line(done: dict) -> str:
    """A call in the transcript."""
    result = done["result"]
    head = f"{done['request']:<12} {done['transport']:<4} {done['way']:<6} {result['status']:<9}"
    if result["status"] != "COMPLETED":
        return f"{head} {result['error_message']}"
    times = ", ".join(
        f"{name} {result[field]}"
        for name, field in [
            ("queue", "queue_wait_ms"),
            ("key", "srs_load_ms"),
            ("synthesis", "synthesis_ms"),
            ("proof", "gpu_compute_ms"),
            ("total", "total_ms"),
        ]
    )
    where = f"{result['backend']}, key {result['tier']}, columns {result['placement']}"
    early = f", a wait of {EARLY_MS} ms: {done['early']['status']}" if "early" in done else ""
    length = len(result["proof"]) // 2
    return f"{head} {length} bytes, {times} ms, {where}, job {result['job_id']}{early}"


def send_all(contract, stubs: dict, options) -> list[dict]:
    """Every file in every way. The first way rotates, so that of four files each is
    proved by another."""
    calls = []
    for index, path in enumerate(options.requests):
        message = read_request(contract, path)
        name = message.request_id
        for step in range(len(WAYS)):
            transport, way = WAYS[(index + step) % len(WAYS)]
            if options.fresh:
                message.request_id = f"{name}-{transport}-{way}"
            done = {"request": path.stem, "transport": transport, "way": way, "first": step == 0}
            done |= call(contract, stubs[transport], way, message)
            proof = options.out / f"{path.stem}-{transport}-{way}.proof"
            proof.write_bytes(bytes.fromhex(done["result"]["proof"]))
            print(line(done), flush=True)
            calls.append(done)
    return calls


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--proto", type=pathlib.Path, required=True, help=f"folder of {PROTO}")
    options.add_argument("--tcp", required=True, metavar="ADDRESS")
    options.add_argument("--unix", required=True, metavar="FILE")
    options.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    options.add_argument("--fresh", action="store_true", help="a proof for each call")
    options.add_argument("requests", type=pathlib.Path, nargs="+", metavar="REQUEST")
    options = options.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    with contextlib.ExitStack() as stack:
        generated = stack.enter_context(tempfile.TemporaryDirectory())
        contract, service = compile_contract(options.proto, generated)
        targets = {"tcp": options.tcp, "unix": f"unix:{options.unix}"}
        stubs = {name: stack.enter_context(connect(target, service)) for name, target in targets.items()}
        ask_status = contract.GetStatusRequest()

        report = {"before": plain(stubs["unix"].GetStatus(ask_status))}
        report["calls"] = send_all(contract, stubs, options)
        report["refusals"] = refusals(contract, stubs["tcp"])
        report["after"] = plain(stubs["unix"].GetStatus(ask_status))
        report["metrics"] = stubs["tcp"].GetMetrics(contract.GetMetricsRequest()).prometheus_text

    (options.out / "report.json").write_text(json.dumps(report, indent=1))
    after = report["after"]
    keys = ", ".join(f"{key['circuit_id']} {key['tier']} {key['size_bytes']}" for key in after["loaded_srs"])
    print(f"status: {after['total_proofs_completed']} proofs, {after['total_proofs_failed']} failed; keys: {keys}")
    for name, said in report["refusals"].items():
        print(f"{name}: {said}")
    return 0 if all(done["result"]["status"] == "COMPLETED" for done in report["calls"]) else 1


if __name__ == "__main__":
    sys.exit(main())
