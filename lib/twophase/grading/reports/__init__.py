"""What people read: feedback pages, the class report, files for Canvas and Moodle."""
