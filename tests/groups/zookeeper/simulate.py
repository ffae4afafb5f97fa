"""`make simulate SEEDS=…`: run more stories of a group than the tests do.

python -m tests.groups.zookeeper.simulate 42          one story; on a violation all of it
python -m tests.groups.zookeeper.simulate 1000:2000   these, on all processors
python -m tests.groups.zookeeper.simulate --tell 42   the whole story, also without a violation
"""

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from kgroup.testing.story import Violation
from tests.groups.zookeeper.stories.story import tell_whole
from tests.stage.story_totals import most_common, seeds_of

STORIES_PER_TASK = 5


def main(arguments: Sequence[str]) -> int:
    """Run the stories. Returns 1 if one of them was violated."""
    logging.disable(logging.CRITICAL)
    if arguments[0] == "--tell":
        print(tell_whole(int(arguments[1])).transcript())
        return 0

    seeds = seeds_of(arguments[0])
    faults: Counter[str] = Counter()
    bites: Counter[str] = Counter()
    counted = violated = 0

    with ProcessPoolExecutor() as processes:
        for faults_of_one, bites_of_one, transcript in processes.map(
            _outcome, seeds, chunksize=STORIES_PER_TASK
        ):
            faults += faults_of_one
            bites += bites_of_one
            counted += bool(bites_of_one)
            if transcript:
                violated += 1
                print(transcript, end="\n\n")

    print(f"{len(seeds)} stories, {counted} in which a fault bit, {violated} violated")
    print("faults:", most_common(faults))
    print("bites:", most_common(bites))
    return 1 if violated else 0


def _outcome(seed: int) -> tuple[Counter[str], Counter[str], str]:
    try:
        story = tell_whole(seed)
    except Violation as violation:
        return Counter(), Counter(), str(violation)
    return story.faults, story.bites, ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
