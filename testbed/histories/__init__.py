"""Random histories of a job: the real callers, board and repository, a small driver, virtual time, an oracle.

No JVM, no thread, no wait: whoever sleeps lets the others run, so that a seed tells all that happens.

A history has 5 to 16 steps on two hosts whose clocks may be a day apart, under one or two savepoint
roots. Callers ask for all that operators and commands do. Store calls fail, take effect without an
answer, kill their process, or sleep; drivers are killed or fail; hosts are lost with their disks, roots
deleted. At the end faults stop, a person does what the messages say, and the job must count new records.
"""
