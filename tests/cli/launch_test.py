"""everyo launch: a program on several ranks."""

import os
import subprocess
import unittest

from command import COMMAND, run, usage_of

# EVERYO_GROUP is descriptor:rank:timeout.
ONLY_RANK_1 = 'case "$EVERYO_GROUP" in *:1:*) exit 9;; esac'


class Launch(unittest.TestCase):
    def test_runs_the_program_with_its_own_options_on_every_rank(self):
        result = run("launch", "-n", "3", "--", "sh", "-c", 'echo "$0 $1 ${EVERYO_GROUP#*:}"', "--threads", "7")
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(sorted(result.stdout.split("\n")), ["", *(f"--threads 7 {rank}:600" for rank in range(3))])

    def test_ends_with_the_programs_status(self):
        self.assertEqual(run("launch", "-n", "2", "--", "sh", "-c", "exit 9").returncode, 9)
        self.assertEqual(run("launch", "-n", "2", "--", "sh", "-c", "kill -9 $$").returncode, 137)
        self.assertIn("rank 1: the process exited with status 9", run("launch", "-n", "2", "--", "sh", "-c", ONLY_RANK_1).stderr)
        missing = run("launch", "-n", "2", "--", "no-such-program-anywhere")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("cannot run 'no-such-program-anywhere': No such file", missing.stderr)

    def test_knows_the_status_where_its_parent_ignores_sigchld(self):
        ignore = "trap '' CHLD; exec \"$@\""
        launch = [COMMAND, "launch", "-n", "2", "--", "sh", "-c", "exit 9"]
        self.assertEqual(subprocess.run(["sh", "-c", ignore, "sh", *launch], capture_output=True, timeout=60).returncode, 9)

    def test_threads_are_those_of_the_option_then_of_the_environment(self):
        program = ("--", "sh", "-c", "echo $OMP_NUM_THREADS")
        environment = os.environ | {"OMP_NUM_THREADS": "3"}
        self.assertEqual(run("launch", "-n", "1", *program, env=environment).stdout, "3\n")
        self.assertEqual(run("launch", "-n", "1", "--threads", "1", *program, env=environment).stdout, "1\n")

    def test_says_what_is_wrong_with_its_own_options(self):
        self.assertIn("whole number from 1 to 256", usage_of("launch", "-n", "0", "--", "true"))
        self.assertIn("program is required", usage_of("launch", "-n", "2"))
        self.assertIn("--ranks is required", usage_of("launch", "--", "true"))
        self.assertIn("no -- stands before the program", usage_of("launch", "-n", "2", "true", "--threads", "7"))
        self.assertIn("--timeout", usage_of("launch", "-n", "2", "--timeout", "-1", "--", "true"))


if __name__ == "__main__":
    unittest.main()
