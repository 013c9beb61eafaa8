"""everyo launch: a program on several ranks."""

import unittest

from command import run, usage_of


class Launch(unittest.TestCase):
    def test_runs_the_program_with_its_own_options_on_every_rank(self):
        result = run("launch", "-n", "3", "--", "sh", "-c", 'echo "$0 $1 ${EVERYO_GROUP#*:}"', "--threads", "7")
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(sorted(result.stdout.split("\n")), ["", *(f"--threads 7 {rank}:600" for rank in range(3))])

    def test_ends_with_the_programs_status(self):
        self.assertEqual(run("launch", "-n", "2", "--", "sh", "-c", "exit 9").returncode, 9)
        self.assertEqual(run("launch", "-n", "2", "--", "sh", "-c", "kill -9 $$").returncode, 137)
        missing = run("launch", "-n", "2", "--", "no-such-program-anywhere")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("cannot run 'no-such-program-anywhere': No such file", missing.stderr)

    def test_says_what_is_wrong_with_its_own_options(self):
        self.assertIn("whole number from 1 to 256", usage_of("launch", "-n", "0", "--", "true"))
        self.assertIn("program is required", usage_of("launch", "-n", "2"))
        self.assertIn("--ranks is required", usage_of("launch", "--", "true"))
        self.assertIn("--timeout", usage_of("launch", "-n", "2", "--timeout", "-1", "--", "true"))


if __name__ == "__main__":
    unittest.main()
