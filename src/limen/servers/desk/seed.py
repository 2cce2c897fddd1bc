"""A small made-up set of documents and tickets, to try the desk with."""

from __future__ import annotations

from datetime import datetime

from limen.servers.desk.importing import NewTicket
from limen.servers.desk.views import Documents, Tickets

AUTHOR = "seed"

DOCUMENTS = {
    "public/handbook.txt": (
        "Handbook of the Example Workshop\n\n"
        "1. The workshop opens at 09:00 and closes at 17:30.\n"
        "2. Tools go back on the wall before anyone goes home.\n"
        "3. Whoever finds a mistake in this handbook may correct it.\n"
    ),
    "public/opening-hours.md": (
        "# Opening hours\n\nMonday to Friday, 09:00 to 17:30.\nClosed on public holidays.\n"
    ),
    "private/customer-secrets.txt": (
        "Made up for demonstrations: no such customer exists.\n"
        "Example Lighthouse Ltd pays 4,200 a year and is thinking of leaving.\n"
    ),
    "drafts/release-note.md": (
        "# Release note, draft\n\nThe new bench vice is heavier and holds better.\n"
    ),
    "team/support/faq.txt": (
        "Q: The drill does not start.\nA: Look whether the battery sits firmly.\n"
    ),
    "team/support/escalation.md": (
        "# Escalation\n\nA ticket that is open for three days goes to the foreman.\n"
    ),
}

TICKETS = (
    NewTicket("T-1001", "The drill does not start", "open", "local", "requester-one"),
    NewTicket("T-1002", "Which glue for oak?", "closed", "local", "requester-two"),
    NewTicket(
        "T-2001", "Invoice shows the wrong address", "open", "somebody-else", "requester-one"
    ),
    NewTicket("T-2002", "Workshop key is missing", "open", None, "local"),
)

NOTES = {
    "T-1001": ("Battery was charged yesterday.", "It clicks but does not turn."),
    "T-2001": ("The customer has written twice.",),
}


def seed(documents: Documents, tickets: Tickets, at: datetime) -> int:
    """Add what is not there yet and return how many documents and tickets that was.

    What is there stays as it is, even where it differs from the set.
    """
    added = 0
    for path, content in DOCUMENTS.items():
        if documents.read_document(path) is None:
            documents.write_document(path, content, AUTHOR, at)
            added += 1
    for new in TICKETS:
        if new.add_to(tickets):
            for note in NOTES.get(new.id, ()):
                tickets.add_note(new.id, note, AUTHOR, at)
            added += 1
    return added
