"""The command ``whatif``: what it is asked, and how it shows what it found."""
