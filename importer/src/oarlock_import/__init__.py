"""SimpleTuner's configuration as a TrainingJob.

Its options, data sets, accelerate file and webhooks go through tables that know every option by name. What comes out is
either a job that trains the same way, each value that changes the numbers written out, or a list of what stands in the
way. No option is passed over: each one is mapped, ignored with the reason, or refused with the reason.
"""
