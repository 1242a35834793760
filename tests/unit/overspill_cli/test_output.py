"""What a program reads from a pipe, and a person on a terminal."""

from overspill_cli.output import blocks, lines, step_lines


def test_a_table_in_a_pipe_has_straight_columns_and_no_blanks_at_the_end():
    rows = (("TIME", "WHAT", "NEXT"), ("12:00:00", "größe 模型", ""), ("9", "b", "c"))
    assert list(lines(rows)) == ["TIME      WHAT        NEXT", "12:00:00  größe 模型", "9         b           c"]


HEAD = ("TIME", "WHAT")
LONG = "the gate opens because home has been full for a while and nothing else fits there"


def shown(rows, width: int) -> list[str]:
    return [line for block in blocks(rows, width) for line in block]


def test_a_long_last_column_is_broken_between_words_beside_the_others():
    assert shown((HEAD, ("12:00:00", LONG), ("12:00:01", "x")), 60) == [
        "TIME      WHAT",
        "12:00:00  the gate opens because home has been full for a",
        "          while and nothing else fits there",
        "12:00:01  x",
    ]


def test_where_there_is_no_room_for_prose_it_stands_below():
    assert shown((HEAD, ("12:00:00", LONG), ("12:00:01", "")), 40) == [
        "TIME      WHAT",
        "12:00:00",
        "    the gate opens because home has been",
        "    full for a while and nothing else",
        "    fits there",
        "12:00:01",
    ]


def test_a_table_without_prose_is_left_to_the_terminal():
    rows = (("INSTANCE", "CLUSTER", "$/H"), ("i-" + "0" * 36, "c-" + "0" * 36, "1.5"))
    assert shown(rows, 40) == list(lines(rows))


def test_a_command_to_copy_is_one_line_and_other_advice_is_prose():
    command = "kubectl -n overspill-system scale deployment overspill-decider --replicas=1"
    assert list(step_lines(command, 40)) == [f"    {command}"]
    assert list(step_lines("is it there, and may these credentials read it?", 40)) == [
        "    is it there, and may these",
        "    credentials read it?",
    ]
    assert list(step_lines("", 40)) == []
