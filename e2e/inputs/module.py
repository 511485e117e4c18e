# What the module promises: the summary, the keywords of subprocess.run, and errors that say what is wrong.
import subprocess
import sys

import vswap

FILL = """
held = [b'%d' % n * 100 for n in range(300_000)]
print(sum(held[n] == b'%d' % n * 100 for n in range(300_000)))
"""

done = vswap.run([sys.executable, "-c", FILL], ram="64M", capture_output=True, text=True)
assert done.returncode == 0 and done.stdout.strip() == "300000", done
assert done.stderr == "", done.stderr
assert done.summary["pages_out"] > 0 and done.summary["limit_bytes"] == 64 << 20, done.summary
assert isinstance(done, subprocess.CompletedProcess) and done.args[0] == sys.executable

done = vswap.run(["sh", "-c", "exit 3"], ram="64M", options=["--swap", "none"])
assert done.returncode == 3 and done.summary["exit_status"] == 3, done

try:
    vswap.run(["false"], ram="64M", check=True)
    raise SystemExit("check does nothing")
except subprocess.CalledProcessError as error:
    assert error.returncode == 1 and error.cmd == ["false"], error

done = vswap.run(["true"], ram="lots", capture_output=True, text=True)
assert done.returncode == 125 and done.summary is None and "lots" in done.stderr, done
try:
    vswap.run("true", ram="64M")
    raise SystemExit("a string is no list")
except TypeError as error:
    assert "list" in str(error)
print("all right")
