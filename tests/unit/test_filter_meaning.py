"""Filters in the domain: what meets them, and what may be asked for."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.filters import NOT_TIMES, filters, metadata_objects

from chunkstore.domain.errors import InvalidFieldError, TenantFilterRefusedError
from chunkstore.domain.filters import (
    MAX_FILTER_CONDITIONS,
    MAX_FILTER_DEPTH,
    MAX_FILTER_VALUES,
    AllOf,
    AnyOf,
    Equals,
    Exists,
    Filter,
    FilterSize,
    Interval,
    NoneOf,
    NumberRange,
    SourceIn,
    SourcePrefix,
    TimeRange,
    checked_instant,
    checked_path,
    instant,
)
from chunkstore.domain.metadata import frozen_metadata

SOURCE: Final = "source"
TRUE, FALSE = SourceIn(frozenset({SOURCE})), SourceIn(frozenset({"another"}))


def meets(where: Filter, **metadata: Any) -> bool:
    return where.meets(SOURCE, frozen_metadata(metadata))


def equals(*values: Any, path: tuple[str, ...] = ("a",)) -> Equals:
    return Equals.of(path, {f"values[{n}]": value for n, value in enumerate(values)})


class TestEquals:
    @pytest.mark.parametrize("value", ["1", "x", "", "é", 1, 0, 1.5, -2.25, 1e308, 5e-324, True, False])
    def test_a_value_equals_itself_and_an_element(self, value: Any) -> None:
        assert meets(equals(value), a=value)
        assert meets(equals(value), a=["other", value])
        assert meets(equals("z", value), a=value)

    @pytest.mark.parametrize(
        ("asked", "held"),
        [("1", 1), (1, "1"), (True, 1), (1, True), (False, 0), (0, False), ("true", True), (0, None), ("", None)],
    )
    def test_kinds_never_mix(self, asked: Any, held: Any) -> None:
        assert not meets(equals(asked), a=held)
        assert not meets(equals(asked), a=[held])

    def test_numbers_compare_as_doubles(self) -> None:
        assert meets(equals(1), a=1.0)
        assert meets(equals(-0.0), a=0)
        assert meets(equals(2**53 + 1), a=2**53)
        assert not meets(equals(0.1), a=math.nextafter(0.1, 1))

    def test_texts_compare_by_code_points(self) -> None:
        assert not meets(equals("e\u0301"), a="\u00e9")
        assert not meets(equals("A"), a="a")
        assert not meets(equals("a"), a="a ")

    def test_an_absent_key_equals_nothing(self) -> None:
        assert not meets(equals("x"), b="x")
        assert not meets(equals("x"))

    def test_an_object_or_an_array_in_an_array_equals_nothing(self) -> None:
        assert not meets(equals("x"), a={"x": "x"})
        assert not meets(equals("x"), a=[["x"]])
        assert not meets(equals("x"), a=[])

    def test_filters_of_values_that_python_takes_for_equal_are_not_equal(self) -> None:
        """Excludes a cache that answers true for 1."""
        assert equals(True) != equals(1)
        assert equals(1) == equals(1.0)

    @pytest.mark.parametrize("value", [None, [1], {"x": 1}, math.nan, math.inf, -math.inf])
    def test_anything_else_is_refused_by_its_field(self, value: Any) -> None:
        with pytest.raises(InvalidFieldError) as refused:
            equals("fine", value)
        assert refused.value.field == "values[1]"


class TestPaths:
    def test_keys_are_looked_up_from_the_root(self) -> None:
        assert meets(equals("x", path=("a", "b")), a={"b": "x"})
        assert not meets(equals("x", path=("b",)), a={"b": "x"})

    def test_a_key_is_whole(self) -> None:
        assert meets(equals("x", path=("a.b",)), **{"a.b": "x"})
        assert not meets(equals("x", path=("a.b",)), a={"b": "x"})
        assert meets(equals("x", path=("",)), **{"": "x"})

    def test_a_number_is_a_key_and_no_place_in_an_array(self) -> None:
        assert meets(equals("x", path=("a", "0")), a={"0": "x"})
        assert not meets(equals("x", path=("a", "0")), a=["x"])

    def test_an_array_of_objects_is_looked_into(self) -> None:
        where = equals("x", path=("a", "b"))
        assert meets(where, a=[{"c": "x"}, {"b": "x"}])
        assert meets(where, a=[{"b": ["y", "x"]}])
        assert not meets(where, a=[[{"b": "x"}]])

    def test_nothing_is_found_below_a_scalar(self) -> None:
        assert not meets(equals("x", path=("a", "b")), a="x")

    @pytest.mark.parametrize(
        "key",
        [
            "tenant",
            "tenant_id",
            "tenantId",
            "TENANT",
            "Tenant-ID",
            "tenant id",
            "$.tenant_id",
            "x-tenant-id",
            "ｔenant",
        ],
    )
    def test_the_tenant_is_refused_in_every_spelling(self, key: str) -> None:
        for path in ((key,), (key, "below")):
            with pytest.raises(TenantFilterRefusedError) as refused:
                checked_path(path)
            assert refused.value.field == "path[0]"
            assert key not in str(refused.value).removeprefix("path[0] must not name the tenant")

    def test_what_only_resembles_the_tenant_is_not_refused(self) -> None:
        for path in (("tenants",), ("tenancy",), ("owner", "tenant_id"), ("my_tenant",)):
            assert checked_path(path) == path

    def test_from_1_to_16_keys(self) -> None:
        assert len(checked_path(["k"] * 16)) == 16
        for path, field in (([], "path"), (["k"] * 17, "path"), (["k", "\0"], "path[1]")):
            with pytest.raises(InvalidFieldError) as refused:
                checked_path(path)
            assert refused.value.field == field


class TestRanges:
    @pytest.mark.parametrize(
        ("bounds", "within", "without"),
        [
            ({"gt": 1}, [1.5, 2], [1, 0.5]),
            ({"gte": 1}, [1, 1.5], [0.5]),
            ({"lt": 1}, [0.5, -1], [1, 1.5]),
            ({"lte": 1}, [1, 0.5], [1.5]),
            ({"gte": 1, "lt": 2}, [1, 1.5], [2, 0.5]),
            ({"gt": 1, "lte": 2}, [1.5, 2], [1, 2.5]),
            ({"gte": 1, "lte": 1}, [1], [0, 2]),
            ({"gte": -0.0}, [0], [-1e-300]),
        ],
    )
    def test_bounds(self, bounds: dict[str, float], within: list[float], without: list[float]) -> None:
        where = NumberRange(("a",), Interval(**bounds))
        assert all(meets(where, a=value) and meets(where, a=["x", value]) for value in within)
        assert not any(meets(where, a=value) or meets(where, a=[value, "x"]) for value in without)

    def test_one_element_must_be_within_both_bounds(self) -> None:
        assert not meets(NumberRange(("a",), Interval(gte=2, lt=5)), a=[1, 10])

    @pytest.mark.parametrize("value", [True, "1", None, [[1]], {"a": 1}, []])
    def test_what_is_no_number_is_within_no_range(self, value: Any) -> None:
        assert not meets(NumberRange(("a",), Interval(gte=-1e308)), a=value)

    @pytest.mark.parametrize(
        ("bounds", "field"),
        [
            ({"gt": math.nan}, "gt"),
            ({"lte": math.inf}, "lte"),
            ({"gt": 1, "gte": 1}, "gt"),
            ({"lt": 1, "lte": 1}, "lt"),
            ({}, ""),
            ({"gte": 2, "lte": 1}, ""),
            ({"gt": 1, "lte": 1}, ""),
            ({"gte": 1, "lt": 1}, ""),
        ],
    )
    def test_a_range_that_makes_no_sense_is_refused(self, bounds: dict[str, float], field: str) -> None:
        with pytest.raises(InvalidFieldError) as refused:
            Interval(**bounds)
        assert refused.value.field == field


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "nanoseconds"),
        [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.000000001Z", 1),
            ("1970-01-01t01:00:00+01:00", 0),
            ("1969-12-31T23:59:59-00:00", -(10**9)),
            ("1970-01-01T00:30:00-05:30", 6 * 3600 * 10**9),
            ("2024-02-29T12:00:00.5z", 1709208000 * 10**9 + 5 * 10**8),
            ("0001-01-01T00:00:00Z", -62135596800 * 10**9),
            ("9999-12-31T23:59:59Z", 253402300799 * 10**9),
        ],
    )
    def test_a_time_is_an_instant(self, text: str, nanoseconds: int) -> None:
        assert instant(text) == nanoseconds

    @pytest.mark.parametrize("text", NOT_TIMES)
    def test_what_is_no_time_is_none(self, text: str) -> None:
        assert instant(text) is None

    @given(st.datetimes(timezones=st.just(UTC)))
    def test_agrees_with_the_standard_library(self, when: datetime) -> None:
        microseconds = (when - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
        assert instant(when.isoformat()) == microseconds * 1000

    def test_times_compare_as_instants(self) -> None:
        noon = instant("2024-05-01T12:00:00Z")
        where = TimeRange(("a",), Interval(gte=noon, lte=noon))
        assert meets(where, a="2024-05-01T14:00:00+02:00")
        assert meets(where, a=["x", 1, "2024-05-01T12:00:00.000Z"])
        assert not meets(where, a="2024-05-01T12:00:00+02:00")
        assert not meets(where, a="2024-05-01T12:00:00.000000001Z")
        assert not meets(where, a=1714564800)
        assert not meets(where, a=[["2024-05-01T12:00:00Z"]])

    def test_a_bound_is_of_the_years_1_to_9999(self) -> None:
        assert checked_instant(-62135596800, 0, "gte") == instant("0001-01-01T00:00:00Z")
        assert checked_instant(253402300799, 999_999_999, "gte") == instant("9999-12-31T23:59:59.999999999Z")
        for seconds, nanos in ((-62135596801, 0), (253402300800, 0), (0, -1), (0, 10**9)):
            with pytest.raises(InvalidFieldError, match="gte"):
                checked_instant(seconds, nanos, "gte")


class TestTheRest:
    @pytest.mark.parametrize("value", ["", "x", 0, False, [], {}, [None]])
    def test_what_is_present_and_not_null_exists(self, value: Any) -> None:
        assert meets(Exists(("a",)), a=value)

    def test_null_and_absence_do_not_exist(self) -> None:
        assert not meets(Exists(("a",)), a=None)
        assert not meets(Exists(("a",)))
        assert not meets(Exists(("a", "b")), a=[{"b": None}, {}])
        assert meets(Exists(("a", "b")), a=[{"b": None}, {"b": 0}])

    def test_sources(self) -> None:
        assert SourcePrefix("sou").meets(SOURCE, {})
        assert SourcePrefix(SOURCE).meets(SOURCE, {})
        assert not SourcePrefix("ource").meets(SOURCE, {})
        assert not SourcePrefix("Sou").meets(SOURCE, {})
        assert TRUE.meets(SOURCE, {})
        assert not FALSE.meets(SOURCE, {})

    def test_groups(self) -> None:
        for one in (TRUE, FALSE):
            for other in (TRUE, FALSE):
                pair = one, other
                assert AllOf(pair).meets(SOURCE, {}) == (one is TRUE and other is TRUE)
                assert AnyOf(pair).meets(SOURCE, {}) == (one is TRUE or other is TRUE)
                assert NoneOf(pair).meets(SOURCE, {}) == (one is FALSE and other is FALSE)

    @given(filters, metadata_objects)
    def test_a_negation_is_met_where_its_filter_is_not(self, where: Filter, metadata: dict[str, Any]) -> None:
        assert meets(NoneOf((where,)), **metadata) != meets(where, **metadata)

    @given(filters)
    def test_filters_are_values(self, where: Filter) -> None:
        """Excludes a tree that cannot be the key of a cache."""
        assert hash(where) == hash(where)

    def test_limits(self) -> None:
        size = FilterSize()
        size.enter(MAX_FILTER_DEPTH)
        for _ in range(MAX_FILTER_CONDITIONS):
            size.add_condition()
        with pytest.raises(InvalidFieldError, match="64 conditions"):
            size.add_condition()
        FilterSize().add_condition(MAX_FILTER_VALUES)
        with pytest.raises(InvalidFieldError, match="1024 values"):
            FilterSize().add_condition(MAX_FILTER_VALUES + 1)
        with pytest.raises(InvalidFieldError, match="8 filters"):
            size.enter(MAX_FILTER_DEPTH + 1)
