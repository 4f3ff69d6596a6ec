"""A compiler launcher that notes what a compilation costs: compile_cost.py LOG COMPILER ARGUMENT...

Appends a line to LOG: processor seconds, the object's path, the source's path.
"""
import fcntl, resource, subprocess, sys


def argument_after(flag, arguments):
    return arguments[arguments.index(flag) + 1] if flag in arguments else "-"


def main():
    log, command = sys.argv[1], sys.argv[2:]
    code = subprocess.run(command).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, "a") as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        out.write(f"{used.ru_utime + used.ru_stime:.2f}\t{argument_after('-o', command)}\t{argument_after('-c', command)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
