"""What Python users and the command line call: one function per question."""
