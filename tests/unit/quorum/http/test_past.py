"""Past states at a glance, differences of two, and losses foreseen, over HTTP."""

from pathlib import Path
from typing import Any

from tests.unit.quorum.http.test_overview import _topic, cluster


async def test_a_past_state_and_what_differs_since_are_those_of_the_log(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (lab, desk, get):
        ends = [desk.controller.committed.end_offset]
        for name in ("a", "b", "c"):
            await lab.write(desk.controller, _topic(name))
            ends.append(desk.controller.committed.end_offset)
        for count, end_offset in enumerate(ends):
            status, shown = await get(f"/v1/past?at={end_offset}&consistency=stale")
            assert status == 200
            state = shown["from"]
            assert (state["topics"], state["end_offset"], shown["to"]) == (count, end_offset, None)
        _, shown = await get(f"/v1/past?at={ends[1]}&to={ends[3]}")
        assert (shown["from"]["topics"], shown["to"]["topics"], shown["more"]) == (1, 3, False)
        assert [(row["kind"], row["key"], row["before"]) for row in shown["items"]] == [
            ("topic", "b", None),
            ("topic", "c", None),
        ]
        _, same = await get(f"/v1/past?at={ends[2]}&to={ends[2]}")
        assert same["from"] == same["to"] and same["items"] == []
        refused: Any = {"": 400, f"at={ends[3]}&to={ends[0]}": 400, f"at={ends[3] + 99}": 409, "at=x": 400}
        for query, wanted in refused.items():
            assert (await get(f"/v1/past?{query}"))[0] == wanted, query


async def test_a_loss_is_foreseen_and_nothing_is_written(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (lab, desk, get):
        await lab.write(desk.controller, _topic("orders", 3))
        before = desk.controller.committed
        status, shown = await get("/v1/whatif?lose=11,12,11&consistency=stale")
        assert status == 200
        first, second = shown["steps"]
        assert (first["broker"], first["leaders_moved"], first["leaderless"]) == (11, 3, 0)
        assert (second["broker"], second["leaderless"]) == (12, 3)
        assert [row["topic"] for row in second["suffering"]] == ["orders"] * 3
        assert desk.controller.committed is before
        assert (await get("/v1/whatif?lose=99"))[1]["steps"] == []
        for refused in ("", "?lose=x", f"?lose={','.join(map(str, range(101)))}"):
            assert (await get(f"/v1/whatif{refused}"))[0] == 400, refused
