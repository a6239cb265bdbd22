"""The gain of each level of the ladders of examples/cuda_lab: times for docs/ladder.md."""


class Ladders:
    def ladder(self):
        """Each ladder makes its own problems: a small one to compare a level with f64, then a large one to time it."""
        for ladder, name, levels, needed in self.call.ladders():
            for number, level in enumerate(levels):
                case = f"ladder, {name}: {level}"
                if self.wanted(case) and (not level.endswith("sm90") or len(self.kernels) > 1):
                    self.level(case, ladder, number, needed)

    def level(self, case, ladder, number, needed):
        def run(_):
            self.call("ladder_run", number, self.stream)

        def error():
            self.call("ladder_open", ladder, 0)
            found = self.call.ladder_error(number)
            self.call("ladder_open", ladder, 1)
            return found

        self.case(case, 1.0, [("trireme", run, error)], [], 1, **needed)
        self.call("ladder_open", -1, 0)
