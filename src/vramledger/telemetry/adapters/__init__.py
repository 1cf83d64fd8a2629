"""What people have: output of tools that print what devices hold."""
