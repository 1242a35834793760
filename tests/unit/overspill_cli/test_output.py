"""What a program reads from a pipe."""

from overspill_cli.output import lines


def test_a_table_in_a_pipe_has_straight_columns_and_no_blanks_at_the_end():
    rows = (("TIME", "WHAT", "NEXT"), ("12:00:00", "größe 模型", ""), ("9", "b", "c"))
    assert list(lines(rows)) == ["TIME      WHAT        NEXT", "12:00:00  größe 模型", "9         b           c"]
