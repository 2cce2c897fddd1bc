"""The papers of an answer: what it covers, and the calendars that say what was to be expected."""
