"""`limen audit`: look at the trail, verify it offline, and prove entries of it to others."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any

import typer

from limen.cli.session import Config, Data, Json, open_house
from limen.cli.show import print_exact, print_fields, print_json, print_table, progress
from limen.errors import LimenError, StoreError

app = typer.Typer(
    help="Look at the audit trail, verify it, prove entries of it.", no_args_is_help=True
)

COLUMNS = ("at", "id", "caller", "method", "tool", "decision", "reason", "state")


@app.command("list")
def list_entries(
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many, newest first.")] = 20,
    decision: Annotated[str | None, typer.Option(help="`allow`, `deny` or `hold`.")] = None,
    tool: Annotated[str | None, typer.Option(help="Calls of one tool.")] = None,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List entries, newest first."""
    if decision not in (None, "allow", "deny", "hold"):
        raise typer.BadParameter("`--decision` is `allow`, `deny` or `hold`")
    expected = {"decision": decision, "tool": tool}
    with open_house(data, config, must_exist=True) as house:
        asked = {key: value for key, value in expected.items() if value is not None}
        entries = house.audit_reader.newest(limit, **asked)
        if as_json:
            print_json({"entries": entries, "counted": house.audit_reader.counts()})
            return
    print_table(COLUMNS, [[entry[column] for column in COLUMNS] for entry in entries])


@app.command()
def show(
    row_id: Annotated[str, typer.Argument(help="Id of a call, as `audit list` shows it.")],
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the entries of one call."""
    with open_house(data, config, must_exist=True) as house:
        entries = house.audit_reader.of_call(row_id)
    if not entries:
        raise LimenError(f"no entry has id `{row_id}`")
    if as_json:
        print_json(entries)
        return
    for number, entry in enumerate(entries):
        if number:
            typer.echo()
        print_fields(entry)


@app.command()
def verify(
    file: Annotated[
        Path | None, typer.Argument(help="A copy of the store. Default: the one in --data.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Verifier key or its file. Default: `audit.key.pub` beside the store."),
    ] = None,
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="A checkpoint that you have kept elsewhere.")
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Find the first edited, deleted, reordered or truncated entry, offline."""
    from limen.store.verify import verify as verify_copy

    path = _store_file(file, data)
    kept = [_text_of(one) for one in checkpoint or []]
    with progress("verifying", _rows_of(path)) as done:
        report = verify_copy(
            path, expected_vkey=_verifier_key(key, path), published=kept, progress=done
        )
    finding = report.finding
    said: dict[str, Any] = {
        "ok": report.ok,
        "rows": report.rows,
        "checkpoints": report.checkpoints,
        "size": report.size,
        "root": base64.b64encode(report.root).decode(),
    }
    if finding is not None:
        said |= {"finding": finding.kind, "message": finding.message}
        said |= {"seq": finding.seq, "id": finding.id}
        said |= {"after_size": finding.after_size, "up_to_size": finding.up_to_size}
    if as_json:
        print_json(said)
    else:
        print_fields({**said, "ok": "yes" if report.ok else "NO"})
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def proof(
    row_id: Annotated[
        str | None, typer.Argument(help="Id of a call, as `audit list` shows it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write `ID.N.body` and `ID.N.proof` to.")
    ] = None,
    check: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Check a proof instead: the proof's file and the body's."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Verifier key, or the file it is in.")] = None,
    file: Annotated[Path | None, typer.Option(help="A copy of the store.")] = None,
    data: Data = None,
) -> None:
    """Prove that an entry is in the log to someone who sees no other entry, or check a proof."""
    from limen.store.verify import check_proof, prove

    if check is not None:
        if key is None:
            raise typer.BadParameter("`--check` needs the log's `--key`")
        body = check[1].read_bytes() if check[1].is_file() else _text_of(check[1]).encode()
        size = check_proof(_text_of(check[0]), body, _key_text(key)).size
        typer.echo(f"the entry is in the log of size {size}")
        return
    if row_id is None:
        raise typer.BadParameter("say which entry: its id, or `--check PROOF BODY`")
    for number, (body, text) in enumerate(prove(_store_file(file, data), row_id)):
        if out is None:
            print_exact(body.decode())
            print_exact(text)
            continue
        if Path(row_id).name != row_id:
            raise LimenError(f"cannot write proof of `{row_id}`: its id is no file name")
        out.mkdir(parents=True, exist_ok=True)
        for suffix, raw in (("body", body), ("proof", text.encode())):
            written = out / f"{row_id}.{number}.{suffix}"
            written.write_bytes(raw)
            typer.echo(str(written))


@app.command()
def checkpoint(data: Data = None, config: Config = None) -> None:
    """Print the signed checkpoint of the log, to be published or kept elsewhere."""
    with open_house(data, config, must_exist=True) as house:
        head = house.audit_reader.head()
    if head is None:
        raise LimenError("the trail has no entry yet")
    typer.echo(head, nl=False)
    typer.echo("keep this where whoever runs this machine cannot change it", err=True)


@app.command()
def export(data: Data = None, config: Config = None) -> None:
    """Print every entry, oldest first, each as one line of JSON."""
    with open_house(data, config, must_exist=True) as house:
        for body in house.audit_reader.all():
            print_exact(body)


def _store_file(file: Path | None, data: Path | None) -> Path:
    if file is not None:
        if not file.is_file():
            raise StoreError(f"cannot open trail `{file}`: there is no such file")
        return file
    from limen.settings import STORE_FILE, data_dir

    path = data_dir(data) / STORE_FILE
    if not path.exists():
        raise StoreError(
            f"no store in `{path.parent}` yet: start with `limen serve desk` or `limen desk seed`"
        )
    return path


def _verifier_key(key: str | None, path: Path) -> str:
    from limen.settings import KEY_FILE
    from limen.store.note import public_path, read_vkey

    return read_vkey(public_path(path.parent / KEY_FILE)) if key is None else _key_text(key)


def _key_text(key: str) -> str:
    from limen.store.note import read_vkey

    return read_vkey(Path(key)) if Path(key).is_file() else key


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise LimenError(f"cannot read `{file}`: {reason}") from error


def _rows_of(path: Path) -> int | None:
    """Guess how many rows there are, for the progress bar alone: a row takes about 900 bytes."""
    return path.stat().st_size // 900 if path.is_file() else None
