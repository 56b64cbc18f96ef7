"""Sizes are read literally and written in binary units."""

import pytest

from highwater._test_memory import format_size, parse_size


@pytest.mark.parametrize(
    "size, expected",
    [
        ("4GiB", 4 * 2**30),
        ("4GB", 4 * 10**9),
        (" 1.5 MiB ", 3 * 2**19),
        ("0.5kB", 500),
        ("2 kib", 2048),
        ("3TB", 3 * 10**12),
        ("1TiB", 2**40),
        ("512B", 512),
        (0, 0),
        (1000, 1000),
    ],
)
def test_a_size_has_a_number_and_a_unit_that_is_taken_literally(size, expected):
    assert parse_size(size) == expected


@pytest.mark.parametrize("size", ["4", "4G", "GiB", "-1MiB", "4 apples", "", "1e3B", "1.MiB", None, 1.5, True, -1])
def test_what_is_not_a_size_is_rejected(size):
    with pytest.raises(ValueError, match="invalid size .*: expected a number and a unit"):
        parse_size(size)


def test_sizes_are_formatted_in_binary_units():
    assert [format_size(size) for size in (0, 1023, 2048, 3 << 19, 4 << 30)] == [
        "0 B",
        "1023 B",
        "2 KiB",
        "1.50 MiB",
        "4 GiB",
    ]
