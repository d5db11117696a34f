"""What the verbs of the command line are made of; torch is imported only when it is needed."""
