"""Shows how far a build of ninja is, from its output on standard input, whose status lines begin with "[done/total] ".

On a terminal it is one line that changes; elsewhere a line a minute. The rest of the time is estimated from the steps done so
far. Everything else, which is what compilers say, is printed as it is.
"""
import re, sys, time

STATUS = re.compile(r"\[(\d+)/(\d+)\] ")


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Progress:
    def __init__(self, out):
        self.out, self.begin, self.shown, self.is_line_open = out, time.monotonic(), float("-inf"), False
        self.is_terminal = out.isatty()

    def close_line(self):
        if self.is_line_open:
            self.out.write("\n")
        self.is_line_open = False

    def status(self, done, total):
        now = time.monotonic()
        seconds = now - self.begin
        # The first steps are the cheap ones; an estimate from fewer would be far off.
        left = f", about {minutes(seconds / done * (total - done))} left" if done >= 8 and done < total else ""
        line = f"   {done} of {total} steps, {minutes(seconds)}{left}"
        if self.is_terminal:
            self.out.write(f"\r{line:60}")
            self.is_line_open = True
        elif now - self.shown > 60 or done == total:
            self.out.write(line + "\n")
            self.shown = now
        self.out.flush()

    def text(self, line):
        self.close_line()
        self.out.write(line)
        self.out.flush()


def main():
    progress = Progress(sys.stdout)
    for line in sys.stdin:
        if match := STATUS.match(line):
            if int(match[2]) > 2:  # before a build, ninja looks for new files in two steps
                progress.status(int(match[1]), int(match[2]))
        elif not line.startswith("ninja: "):
            progress.text(line)
    progress.close_line()


if __name__ == "__main__":
    main()
